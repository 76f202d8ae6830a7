//! What a fake says is of the types that others have published for its platform.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::engine::run;

/// Checks answers (`answer.NAME`) and events (`event.NAME`) against `clients/schemas/PLATFORM.ts`; what is
/// not of its type, or has none there, fails the test.
pub fn check(platform: &str, told: &[(String, Value)]) {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let schemas = clients.join("schemas");
    let install = clients.join("modules");
    let modules = run(
        install.to_str().expect("a path"),
        &[schemas.to_str().expect("a path")],
    );
    let mut checker = Command::new("node")
        .arg(schemas.join("check.js"))
        .arg(platform)
        .env("NODE_PATH", modules.trim())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("node (apt-get install nodejs)");
    let mut input = checker.stdin.take().expect("a pipe");
    for (name, value) in told {
        let line = json!({"name": name, "value": value});
        writeln!(input, "{line}").expect("the checker reads");
    }
    drop(input);
    let output = checker.wait_with_output().expect("the checker ends");
    let said = String::from_utf8_lossy(&output.stdout);
    let count = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{count}");
}
