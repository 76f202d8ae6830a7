//! Builds PID 1 of the sandboxes as a static binary and hands its path on as `MAYFLY_INIT`.
//!
//! The nested build has a target folder and an environment of its own, so flags, wrappers and
//! profiles of the outer build never reach what runs inside a sandbox.

use std::path::PathBuf;
use std::process::{Command, exit};
use std::{env, fs};

/// It is mounted into every sandbox and loaded at every start.
const MOST_BYTES: u64 = 2 << 20;

/// What the nested cargo may still see of cargo's own variables.
const KEPT: [&str; 7] = [
    "CARGO_HOME",
    "CARGO_MAKEFLAGS",
    "CARGO_BUILD_JOBS",
    "CARGO_NET_",
    "CARGO_HTTP_",
    "CARGO_REGISTRIES_",
    "CARGO_SOURCE_",
];

fn main() {
    for path in [
        "build.rs",
        "init/src",
        "init/Cargo.toml",
        "../Cargo.lock",
        "../Cargo.toml",
    ] {
        println!("cargo:rerun-if-changed={path}");
    }
    let target = match (
        variable("CARGO_CFG_TARGET_OS"),
        variable("CARGO_CFG_TARGET_ARCH"),
    ) {
        (os, arch) if os == "linux" && (arch == "x86_64" || arch == "aarch64") => {
            format!("{arch}-unknown-linux-gnu")
        }
        (os, arch) => fail(&format!(
            "sandboxes need Linux on x86_64 or aarch64, not {os} on {arch}"
        )),
    };
    let folder = PathBuf::from(variable("OUT_DIR")).join("init");

    let mut cargo = Command::new(variable("CARGO"));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO") && !KEPT.iter().any(|kept| text.starts_with(kept)) {
            cargo.env_remove(&name);
        }
    }
    for name in [
        "RUSTC",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_LINKER",
        "RUSTDOCFLAGS",
        "CLIPPY_ARGS",
        "CLIPPY_CONF_DIR",
        "LLVM_PROFILE_FILE",
        "TARGET",
        "HOST",
        "OUT_DIR",
        "PROFILE",
        "OPT_LEVEL",
        "DEBUG",
    ] {
        cargo.env_remove(name);
    }
    cargo
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .args([
            "build",
            "--quiet",
            "--locked",
            "--offline",
            "--profile",
            "init",
        ])
        .args([
            "--package",
            "mayfly-init",
            "--bin",
            "mayfly-init",
            "--target",
            &target,
        ])
        .args(["--manifest-path", "../Cargo.toml", "--target-dir"])
        .arg(&folder);
    let output = match cargo.output() {
        Ok(output) => output,
        Err(error) => fail(&format!("cannot run cargo for mayfly-init: {error}")),
    };
    if !output.status.success() {
        fail(&format!(
            "mayfly-init did not build for {target} ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }

    let binary = folder.join(&target).join("init/mayfly-init");
    match fs::metadata(&binary) {
        Ok(found) if found.len() <= MOST_BYTES => {}
        Ok(found) => fail(&format!(
            "{} has {} bytes, at most {MOST_BYTES} are allowed",
            binary.display(),
            found.len()
        )),
        Err(error) => fail(&format!("{}: {error}", binary.display())),
    }
    println!("cargo:rustc-env=MAYFLY_INIT={}", binary.display());
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| fail(&format!("{name}: {error}")))
}

/// `cargo::error` lines are shown as errors of this package, without a panic's noise.
fn fail(reason: &str) -> ! {
    for line in reason.lines() {
        println!("cargo::error={line}");
    }
    exit(1)
}
