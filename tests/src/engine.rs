//! What the engine and the kernel still hold of an installation.

use std::{path::Path, process::Command};

use crate::postgres;

/// Runs a command and returns its standard output; a failure is a panic with what it said.
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}: install it"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Copies a folder with all that a file system keeps, as `cp -a` does, to a place where nothing is.
pub fn copy(from: &Path, to: &Path) {
    let [from, to] = [from, to].map(|path| path.to_str().expect("test paths are UTF-8"));
    run("cp", &["-a", "--", from, to]);
}

/// Names of all containers, in any state, whose name has this prefix.
pub fn containers(prefix: &str) -> Vec<String> {
    named(
        &run("docker", &["ps", "-a", "--format", "{{.Names}}"]),
        prefix,
    )
}

/// Names of all volumes with this prefix.
pub fn volumes(prefix: &str) -> Vec<String> {
    named(
        &run("docker", &["volume", "ls", "--format", "{{.Name}}"]),
        prefix,
    )
}

/// Takes the marks of an installation off its images; as far as the engine answers.
pub fn forget_images(prefix: &str) {
    let marks = prefix
        .trim_end_matches('-')
        .replacen("mayfly-", "mayfly/keep-", 1);
    let format = "{{.Repository}}:{{.Tag}}";
    let listed = Command::new("docker")
        .args(["images", "--format", format, &marks])
        .output();
    let Ok(listed) = listed else { return };
    for image in named(&String::from_utf8_lossy(&listed.stdout), &marks) {
        let _ = Command::new("docker")
            .args(["rmi", "--no-prune", &image])
            .output();
    }
}

/// Mounts that name this path.
pub fn mounts(path: &str) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/mounts").expect("/proc is mounted");
    table
        .lines()
        .filter(|line| line.contains(path))
        .map(str::to_owned)
        .collect()
}

fn named(list: &str, prefix: &str) -> Vec<String> {
    list.lines()
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect()
}

/// Asks the database of a data dir, of which this would be the file; columns by `|`, rows by lines.
pub fn sql(database: &Path, query: &str) -> String {
    if is_on_postgres(database) {
        return postgres::sql(data_dir(database), query);
    }
    let database = database.to_str().expect("test paths are UTF-8");
    run(
        "sqlite3",
        &["-readonly", "-cmd", ".timeout 60000", database, query],
    )
    .trim()
    .to_owned()
}

/// Changes it, as time or another program would have.
pub fn change(database: &Path, statement: &str) {
    if is_on_postgres(database) {
        postgres::sql(data_dir(database), statement);
        return;
    }
    let database = database.to_str().expect("test paths are UTF-8");
    run("sqlite3", &["-cmd", ".timeout 60000", database, statement]);
}

fn is_on_postgres(database: &Path) -> bool {
    postgres::wanted() || postgres::is_made(data_dir(database))
}

fn data_dir(database: &Path) -> &Path {
    database.parent().expect("it lies in a data dir")
}
