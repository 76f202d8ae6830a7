//! Builds PID 1 of the sandboxes as a static binary and hands its path on as `MAYFLY_INIT`.
//!
//! The nested build has a target folder and an environment of its own, so flags, wrappers and
//! profiles of the outer build never reach what runs inside a sandbox.

// A build script is configured by its environment.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
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

/// What belongs to the outer build.
const OUTER: [&str; 14] = [
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
];

fn main() -> ExitCode {
    for path in [
        "build.rs",
        "init/src",
        "init/Cargo.toml",
        "../Cargo.lock",
        "../Cargo.toml",
    ] {
        println!("cargo:rerun-if-changed={path}");
    }
    match build() {
        Ok(binary) => {
            println!("cargo:rustc-env=MAYFLY_INIT={}", binary.display());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            // Shown as errors of this package, without a panic's noise.
            reason
                .lines()
                .for_each(|line| println!("cargo::error={line}"));
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<PathBuf, String> {
    let target = match (
        &*variable("CARGO_CFG_TARGET_OS")?,
        &*variable("CARGO_CFG_TARGET_ARCH")?,
    ) {
        ("linux", arch @ ("x86_64" | "aarch64")) => format!("{arch}-unknown-linux-gnu"),
        (os, arch) => {
            return Err(format!(
                "sandboxes need Linux on x86_64 or aarch64, not {os} on {arch}"
            ));
        }
    };
    let folder = PathBuf::from(variable("OUT_DIR")?).join("init");
    let output = cargo(&target, &folder)?
        .output()
        .map_err(|error| format!("cannot run cargo for mayfly-init: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "mayfly-init did not build for {target} ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let binary = folder.join(&target).join("init/mayfly-init");
    let found = fs::metadata(&binary).map_err(|error| format!("{}: {error}", binary.display()))?;
    if found.len() > MOST_BYTES {
        return Err(format!(
            "{} has {} bytes, at most {MOST_BYTES} are allowed",
            binary.display(),
            found.len()
        ));
    }
    Ok(binary)
}

fn cargo(target: &str, folder: &Path) -> Result<Command, String> {
    let mut cargo = Command::new(variable("CARGO")?);
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let own = text.starts_with("CARGO") && !KEPT.iter().any(|kept| text.starts_with(kept));
        if own || OUTER.contains(&&*text) {
            cargo.env_remove(&name);
        }
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
            target,
        ])
        .args(["--manifest-path", "../Cargo.toml", "--target-dir"])
        .arg(folder);
    Ok(cargo)
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
