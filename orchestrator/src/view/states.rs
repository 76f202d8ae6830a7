//! States as JSON: names are any bytes there, and text here.

use rustix::fs::FileType;

use super::{ChangeView, DiffView, FileView, ListingView};
use crate::snapshot::{Change, ChangeKind, Diff, FileEntry, Looked, Text};

impl From<&Diff> for DiffView {
    fn from(diff: &Diff) -> Self {
        DiffView {
            changes: diff.changes.iter().map(ChangeView::from).collect(),
            more: diff.more,
            notes: diff.notes.clone(),
        }
    }
}

impl From<&Change> for ChangeView {
    fn from(change: &Change) -> Self {
        let kind = match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Removed => "removed",
            ChangeKind::Modified => "modified",
            ChangeKind::TypeChanged => "type",
            ChangeKind::ModeChanged => "mode",
            ChangeKind::Renamed => "renamed",
        };
        let (text, no_text) = match &change.text {
            Text::None => (None, None),
            Text::Hunks(hunks) => (Some(lossy(hunks)), None),
            Text::Binary => (None, Some("binary")),
            Text::Large => (None, Some("large")),
            Text::LeftOut => (None, Some("left out")),
        };
        ChangeView {
            path: lossy(&change.path),
            path_encoded: encoded(&change.path),
            kind: kind.to_owned(),
            from: change.from.as_deref().map(lossy),
            below: change.below,
            mode_before: change.before.as_ref().map(|side| side.mode),
            mode_after: change.after.as_ref().map(|side| side.mode),
            added: change.added_lines,
            removed: change.removed_lines,
            bytes_before: change.bytes_before,
            bytes_after: change.bytes_after,
            text,
            no_text: no_text.map(str::to_owned),
        }
    }
}

impl From<&FileEntry> for FileView {
    fn from(entry: &FileEntry) -> Self {
        // The root, which holds the slots, has no mode.
        let kind = match (entry.mode, FileType::from_raw_mode(entry.mode)) {
            (0, _) | (_, FileType::Directory) => "folder",
            (_, FileType::Symlink) => "link",
            _ => "file",
        };
        FileView {
            path: lossy(&entry.path),
            path_encoded: encoded(&entry.path),
            kind: kind.to_owned(),
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            size: entry.size,
            mtime: entry.mtime.0,
            mtime_ns: entry.mtime.1,
            target: entry.target.as_deref().map(lossy),
        }
    }
}

impl From<&Looked> for ListingView {
    fn from(looked: &Looked) -> Self {
        match looked {
            Looked::File(entry, _) | Looked::Link(entry) => ListingView {
                entry: entry.into(),
                ..ListingView::default()
            },
            Looked::Folder {
                entry,
                entries,
                more,
            } => ListingView {
                entry: entry.into(),
                entries: entries.iter().map(FileView::from).collect(),
                more: *more,
                next: entries
                    .last()
                    .filter(|_| *more)
                    .map(|last| percent(&last.path)),
            },
        }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Percent-encoded, where it is no UTF-8.
fn encoded(path: &[u8]) -> Option<String> {
    std::str::from_utf8(path).is_err().then(|| percent(path))
}

fn percent(path: &[u8]) -> String {
    let encode = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
            char::from(*byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    path.iter().map(encode).collect()
}
