//! Whatever is wrong is told in one sentence that names it and the way out, with its own exit code,
//! and what was accepted before is still there.

mod configuration;
mod data_dirs;
mod disk;
mod doctor;
mod engine;
mod lost;
mod messages;
mod names;
mod servers;

use std::process::Output;

use mayfly_tests::server::Server;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mayfly-under-test");

/// The one sentence on standard error of a command that must end with this code.
fn told(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let sentence = said.strip_prefix("mayfly: ").unwrap_or_default();
    assert_eq!(sentence.trim_end().lines().count(), 1, "{said}");
    assert!(sentence.len() < 500, "{sentence}");
    sentence.trim_end().to_owned()
}

/// As [`told`], and the sentence holds these.
fn refused(output: &Output, code: i32, fragments: &[&str]) {
    let sentence = told(output, code);
    for fragment in fragments {
        assert!(
            sentence.contains(fragment),
            "{sentence:?} lacks {fragment:?}"
        );
    }
}

/// What a command that must succeed printed.
fn printed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

fn simulated() -> Server {
    let mut server = Server::simulated(PROGRAM);
    server.start();
    server
}
