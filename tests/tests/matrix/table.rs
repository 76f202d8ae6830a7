//! The table of a run: rows of all its tests, in the file that `MATRIX_TABLE` names, and each test's own in what it
//! prints.

use std::{fs::OpenOptions, io::Write as _};

use crate::blows::Blow;

/// Whether this run shall have this blow: `MATRIX_BLOWS` has words of those wanted, with commas between.
#[allow(clippy::disallowed_methods)]
pub(crate) fn wanted(blow: &Blow) -> bool {
    let words = std::env::var("MATRIX_BLOWS").unwrap_or_default();
    let row = blow.to_string();
    words.split(',').any(|word| row.contains(word))
}

/// Adds one. Tests are processes of their own: it is written at once, behind those of others.
#[allow(clippy::disallowed_methods)]
pub(crate) fn row(row: &str) {
    println!("{row}");
    let Some(path) = std::env::var_os("MATRIX_TABLE") else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(format!("{row}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
