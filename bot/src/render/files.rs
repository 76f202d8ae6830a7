//! Folders of a state.

use mayfly_orchestrator::view::{FileView, ListingView};

use super::{quote::quoted, time};
use crate::screen::Screen;

/// As `ls -l` has it: type and mode, owner, size, time, name.
pub(crate) fn listing(view: &ListingView, screen: Screen) -> String {
    let one = std::slice::from_ref(&view.entry);
    let (entries, below) = match view.entry.kind.as_str() {
        "folder" => (&view.entries[..], below(&view.entry)),
        _ => (one, String::new()),
    };
    let sizes = entries.iter().map(|entry| entry.size.to_string().len());
    let width = sizes.max().unwrap_or(1);
    let line = |entry: &FileView| {
        let (owner, at) = (
            format!("{}:{}", entry.uid, entry.gid),
            time(entry.mtime * 1000),
        );
        let mode = mode(entry);
        let size = entry.size;
        format!(
            "{mode} {owner:9} {size:width$} {at} {}\n",
            name(entry, &below, screen)
        )
    };
    entries.iter().map(line).collect()
}

fn below(folder: &FileView) -> String {
    match folder.path.as_str() {
        "/" => String::new(),
        path => format!("{path}/"),
    }
}

fn name(entry: &FileView, below: &str, screen: Screen) -> String {
    let bytes = match &entry.path_encoded {
        Some(encoded) => crate::http::unescaped(encoded),
        None => entry.path.clone().into_bytes(),
    };
    let name = quoted(bytes.strip_prefix(below.as_bytes()).unwrap_or(&bytes));
    match (entry.kind.as_str(), &entry.target) {
        ("folder", _) => screen.bold(&format!("{name}/")),
        (_, Some(target)) => format!("{name} -> {}", quoted(target.as_bytes())),
        _ => name,
    }
}

fn mode(entry: &FileView) -> String {
    let kind = match entry.kind.as_str() {
        "folder" => 'd',
        "link" => 'l',
        _ => '-',
    };
    let bit = |(at, letter): (u32, char)| match entry.mode >> (8 - at) & 1 {
        0 => '-',
        _ => letter,
    };
    let letters = (0..9).zip("rwxrwxrwx".chars()).map(bit);
    std::iter::once(kind).chain(letters).collect()
}
