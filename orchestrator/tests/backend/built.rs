//! Images of a test's own, on top of `mayfly/tiny`, made by the builder that every engine has.

use std::{
    io::Write,
    process::{Command, Stdio},
};

/// An image under a name of its own; dropped, it is taken away.
pub(crate) struct Built {
    name: String,
}

impl Built {
    /// `lines` follow `FROM mayfly/tiny`.
    pub(crate) fn new(lines: &str) -> Built {
        let name = format!("mayfly-test/{}", uuid::Uuid::new_v4().simple());
        let mut build = Command::new("docker")
            .args(["build", "--quiet", "--force-rm", "--network", "none"])
            .args(["--tag", &name, "-"])
            .env("DOCKER_BUILDKIT", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the docker command");
        let text = format!("FROM mayfly/tiny\n{lines}\n");
        let mut stdin = build.stdin.take().expect("piped");
        stdin.write_all(text.as_bytes()).expect("it reads");
        drop(stdin);
        let done = build.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{text}: {said}");
        Built { name }
    }

    /// As a reference.
    pub(crate) fn reference(&self) -> String {
        format!("docker:{}", self.name)
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let remove = ["image", "rm", "--force", &self.name];
        let _ = Command::new("docker").args(remove).output();
    }
}
