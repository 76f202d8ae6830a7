//! What images bring along, and what becomes of it. Docker only: the fake's images are all alike.

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::PathBuf,
    process::Command,
    sync::Arc,
};

use mayfly_orchestrator::sandbox::{Backend as _, BackendError, BaseFacts, Origin};

use crate::{
    built::Built,
    registry::Registry,
    stage::{Attempt, Stage, chain, docker, sh},
};

struct Extracted {
    stage: Stage,
    into: PathBuf,
    facts: Result<BaseFacts, BackendError>,
}

async fn extracted(built: &Built) -> Extracted {
    let stage = Stage::on(Arc::new(docker()), &built.reference()).await;
    let into = stage.dir.path().join("base");
    fs::create_dir(&into).unwrap();
    let slots = [
        ("work".to_owned(), "/work".to_owned()),
        ("home".to_owned(), "/home/agent".to_owned()),
    ];
    let facts = stage
        .backend
        .extract_base(&stage.owner(), &stage.image, &slots, &into)
        .await;
    Extracted { stage, into, facts }
}

impl Extracted {
    fn ok(&self) -> &BaseFacts {
        match &self.facts {
            Ok(facts) => facts,
            Err(error) => panic!("{}", chain(error)),
        }
    }

    /// Refused in one sentence that holds all of `words`, with nothing left on the engine.
    async fn refused(self, words: &[&str]) {
        match &self.facts {
            Err(error @ BackendError::BadImage { .. }) => {
                let text = error.to_string();
                assert!(words.iter().all(|word| text.contains(word)), "{text}");
            }
            other => panic!("{other:?}"),
        }
        self.end().await;
    }

    /// An attempt on this base, as this image's agent.
    fn attempt(&self) -> Attempt {
        let mut attempt = self.stage.attempt();
        let (facts, spec) = (self.ok().clone(), &mut attempt.spec);
        (spec.uid, spec.gid) = (facts.uid, facts.gid);
        (spec.passwd, spec.group) = (self.into.join("passwd"), self.into.join("group"));
        spec.slots[0].lowers = vec![self.into.join("work")];
        std::os::unix::fs::chown(&attempt.upper, Some(facts.uid), Some(facts.gid)).unwrap();
        attempt
    }

    async fn end(self) {
        let release = self.stage.backend.release(self.stage.installation, &[]);
        release.await.unwrap();
        self.stage.nothing_left().await;
    }
}

fn inspect(container: &str, format: &str) -> String {
    let arguments = ["inspect", "--format", format, container];
    let output = Command::new("docker").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn sn_11_a_volume_that_would_lose_files_is_refused_when_the_agent_is_made() {
    let built = Built::new("VOLUME /data");
    extracted(&built)
        .await
        .refused(&["VOLUME /data", "lost", "/work"])
        .await;
    let built = Built::new("VOLUME /work/deep");
    extracted(&built)
        .await
        .refused(&["VOLUME /work/deep", "/work"])
        .await;
}

#[tokio::test]
async fn sn_11_a_volume_that_would_lose_files_is_refused_for_one_tick_too() {
    let built = Built::new("VOLUME /data");
    let stage = Stage::on(Arc::new(docker()), &built.reference()).await;
    let attempt = stage.attempt();
    let error = stage.backend.spawn(&attempt.spec).await.unwrap_err();
    assert!(matches!(error, BackendError::BadImage { .. }), "{error}");
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn sn_11_a_volume_that_is_a_slot_is_that_slot() {
    let built = Built::new("RUN mkdir /work && echo seed > /work/seed\nVOLUME /work /tmp/x");
    let extracted = extracted(&built).await;
    assert_eq!(
        fs::read_to_string(extracted.into.join("work/seed")).unwrap(),
        "seed\n"
    );
    let attempt = extracted.attempt();
    let mut live = extracted.stage.spawn(&attempt).await;
    let script = "cat seed; echo mine > mine; echo t > /tmp/x/t && echo scratch";
    assert_eq!(sh(&mut live, script).await.out(), "seed\nscratch\n");
    let volumes = r#"{{range .Mounts}}{{if eq .Type "volume"}}{{.Name}} {{end}}{{end}}"#;
    let names = &attempt.spec.names;
    assert_eq!(inspect(&names.container, volumes), names.volumes[0]);
    extracted.stage.remove(&attempt).await;
    assert_eq!(
        fs::read_to_string(attempt.upper.join("mine")).unwrap(),
        "mine\n"
    );
    extracted.end().await;
}

#[tokio::test]
async fn a_health_check_does_not_run() {
    let built = Built::new("HEALTHCHECK --interval=200ms CMD touch /tmp/checked; true");
    let extracted = extracted(&built).await;
    let attempt = extracted.attempt();
    let mut live = extracted.stage.spawn(&attempt).await;
    let container = &attempt.spec.names.container;
    assert_eq!(inspect(container, "{{json .State.Health}}"), "null");
    let ran = sh(&mut live, "sleep 2; ls /tmp").await;
    assert_eq!(ran.out(), "", "{ran:?}");
    extracted.stage.remove(&attempt).await;
    extracted.end().await;
}

#[tokio::test]
async fn the_agent_is_the_images_user_and_never_root() {
    let people = "RUN echo 'root:x:0:0::/:/bin/sh' > /etc/passwd \
        && echo 'bob:x:1234:1300::/:/bin/sh' >> /etc/passwd \
        && echo 'crew:x:77:' > /etc/group\n";
    for (user, ids, noted) in [
        ("bob", (1234, 1300), false),
        ("bob:crew", (1234, 77), false),
        ("1234", (1234, 1300), false),
        ("501:20", (501, 20), false),
        ("0", (1000, 1000), true),
        ("root", (1000, 1000), true),
    ] {
        let built = Built::new(&format!("{people}USER {user}"));
        let extracted = extracted(&built).await;
        let facts = extracted.ok();
        assert_eq!((facts.uid, facts.gid), ids, "{user}");
        assert_eq!(
            facts.notes.iter().any(|note| note.contains("root")),
            noted,
            "{facts:?}"
        );
        let attempt = extracted.attempt();
        let ran = extracted
            .stage
            .tick(&attempt, "id -u; id -g; id -un; echo x > f")
            .await;
        let out: Vec<&str> = ran.out().lines().collect();
        assert_eq!(
            out[..2],
            [ids.0.to_string(), ids.1.to_string()],
            "{user}: {ran:?}"
        );
        assert_eq!(
            out.get(2).is_some_and(|name| *name == "bob"),
            ids.0 == 1234,
            "{ran:?}"
        );
        assert_eq!(fs::metadata(attempt.upper.join("f")).unwrap().uid(), ids.0);
        extracted.end().await;
    }
    let built = Built::new(&format!("{people}USER nobody-here"));
    extracted(&built)
        .await
        .refused(&["nobody-here", "/etc/passwd"])
        .await;
}

#[tokio::test]
async fn an_image_without_passwd_gets_one() {
    let built = Built::new("LABEL nothing=else");
    let extracted = extracted(&built).await;
    let attempt = extracted.attempt();
    let ran = extracted
        .stage
        .tick(&attempt, "id -un; wc -l < /etc/group")
        .await;
    assert!(ran.out().starts_with("agent\n"), "{ran:?}");
    extracted.end().await;
}

#[tokio::test]
async fn a_link_in_a_slots_place_is_refused_with_its_target() {
    let built = Built::new("RUN mkdir -p /srv/x && ln -s /srv/x /work");
    extracted(&built)
        .await
        .refused(&["/work", "link to /srv/x"])
        .await;
    let built = Built::new("RUN mkdir /people && ln -s /people /home");
    extracted(&built)
        .await
        .refused(&["/home ", "link to /people"])
        .await;
}

#[tokio::test]
async fn devices_and_raised_bits_do_not_get_into_a_base() {
    let built = Built::new(
        "RUN mkdir /work && cp /bin/busybox /work/su && chmod 6755 /work/su \
         && mknod /work/null c 1 3 && mknod /work/disk b 8 0 && mkfifo /work/fifo",
    );
    let extracted = extracted(&built).await;
    let work = extracted.into.join("work");
    assert_eq!(
        fs::metadata(work.join("su")).unwrap().mode() & 0o7777,
        0o755
    );
    let names: Vec<_> = fs::read_dir(&work)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["su"]);
    assert!(!fs::metadata(work.join("su")).unwrap().file_type().is_fifo());
    assert_eq!(extracted.ok().notes.len(), 4, "{:?}", extracted.ok().notes);
    extracted.end().await;
}

#[tokio::test]
async fn the_images_command_is_ignored_and_init_has_none_of_its_environment() {
    let built = Built::new(
        "ENV LD_PRELOAD=/x.so MAYFLY_TEST=there\nENTRYPOINT [\"/bin/false\"]\nCMD [\"x\"]\nWORKDIR /var",
    );
    let extracted = extracted(&built).await;
    let env = &extracted.stage.image.env;
    assert!(
        env.contains(&("MAYFLY_TEST".to_owned(), "there".to_owned())),
        "{env:?}"
    );
    let attempt = extracted.attempt();
    let mut live = extracted.stage.spawn(&attempt).await;
    let init = live.init_pid.expect("a process of this host");
    let environment = fs::read(format!("/proc/{init}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment);
    for name in ["LD_PRELOAD", "MAYFLY_TEST", "PATH="] {
        assert!(!environment.contains(name), "{environment}");
    }
    assert_eq!(sh(&mut live, "pwd").await.out(), "/work\n");
    extracted.stage.remove(&attempt).await;
    extracted.end().await;
}

#[tokio::test]
async fn an_archive_gives_the_same_image_again() {
    let built = Built::new("RUN echo only here > /etc/only");
    let stage = Stage::on(Arc::new(docker()), &built.reference()).await;
    let (id, backend) = (stage.image.id.clone(), &stage.backend);
    let kept = backend.keep(stage.installation, &id).await.unwrap();
    assert_eq!(kept.registry, None);
    let archive = stage.dir.path().join("a.tar");
    backend.archive(&id, &archive).await.unwrap();
    assert!(backend.archive(&id, &archive).await.is_err(), "overwritten");
    drop(built);
    backend
        .release(stage.installation, std::slice::from_ref(&id))
        .await
        .unwrap();
    backend.keep(stage.installation, &id).await.unwrap();
    backend.release(stage.installation, &[]).await.unwrap();
    let lost = |result| {
        assert!(
            matches!(result, Err(BackendError::NoImage(_))),
            "{result:?}"
        )
    };
    lost(backend.keep(stage.installation, &id).await.map(drop));
    let nothing = backend.archive(&id, &stage.dir.path().join("b")).await;
    assert!(nothing.is_err());

    backend
        .restore(&id, &Origin::Archive(archive.clone()))
        .await
        .unwrap();
    backend.keep(stage.installation, &id).await.unwrap();
    backend.release(stage.installation, &[]).await.unwrap();
    // Half an archive brings nothing, and an archive of another image brings that one.
    let half = stage.dir.path().join("half.tar");
    let bytes = fs::read(&archive).unwrap();
    fs::write(&half, &bytes[..bytes.len() / 2]).unwrap();
    assert!(backend.restore(&id, &Origin::Archive(half)).await.is_err());
    lost(backend.keep(stage.installation, &id).await.map(drop));
    let other = format!("sha256:{}", "0".repeat(64));
    lost(backend.restore(&other, &Origin::Archive(archive)).await);
    backend.keep(stage.installation, &id).await.unwrap();
    backend.release(stage.installation, &[]).await.unwrap();
    stage.nothing_left().await;
}

#[tokio::test]
async fn marks_of_another_installation_are_left_alone() {
    let built = Built::new("LABEL two=1");
    let stage = Stage::on(Arc::new(docker()), &built.reference()).await;
    let (id, backend) = (stage.image.id.clone(), &stage.backend);
    let other = mayfly_domain::InstallationId::new();
    backend.keep(stage.installation, &id).await.unwrap();
    backend.keep(other, &id).await.unwrap();
    backend.release(stage.installation, &[]).await.unwrap();
    let tags = inspect(&id, "{{.RepoTags}}");
    assert!(
        tags.contains(&other.short()) && !tags.contains(&stage.installation.short()),
        "{tags}"
    );
    backend.release(other, &[]).await.unwrap();
    stage.nothing_left().await;
}

#[tokio::test]
async fn a_registry_gives_the_same_image_again() {
    let built = Built::new("RUN echo shared > /etc/shared");
    let stage = Stage::on(Arc::new(docker()), &built.reference()).await;
    let (id, backend) = (stage.image.id.clone(), &stage.backend);
    let registry = Registry::of(&id);
    drop(built);
    let from = Origin::Registry(registry.name.clone());
    backend
        .restore(&id, &from)
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    let kept = backend.keep(stage.installation, &id).await.unwrap();
    assert_eq!(kept.registry.as_deref(), Some(&*registry.name));
    assert!(kept.bytes > 1 << 20, "{kept:?}");
    registry.close();
    // A registry that is silent when a process asks first counts as none.
    let kept = docker().keep(stage.installation, &id).await.unwrap();
    assert_eq!(kept.registry, None);
    let remove = ["image", "rm", "--force", &id];
    Command::new("docker").args(remove).output().unwrap();
    assert!(backend.restore(&id, &from).await.is_err());
    stage.nothing_left().await;
}
