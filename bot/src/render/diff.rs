//! Differences between states.

use mayfly_orchestrator::view::{ChangeView, DiffView};

use super::{bytes, patch::ends, quote::quoted};
use crate::screen::Screen;

/// One line per entry, with lines and bytes, and the sums.
pub(crate) fn diff(view: &DiffView, screen: Screen) -> String {
    if view.changes.is_empty() && view.more == 0 {
        return "nothing changed\n".to_owned();
    }
    let line = |change: &ChangeView| {
        let (kind, counts) = (painted(change, screen), counts(change));
        let line = format!("{kind} {}  {counts}", shown(change));
        format!("{}\n", line.trim_end())
    };
    let mut text: String = view.changes.iter().map(line).collect();
    text.push_str(&totals(view));
    for end in ends(view.more, &view.notes) {
        text.push_str(&format!("{end}\n"));
    }
    text
}

/// One path a line, as `git diff --name-only`.
pub(crate) fn names(view: &DiffView) -> String {
    let line = |change: &ChangeView| format!("{}\n", name(change));
    view.changes.iter().map(line).collect()
}

fn name(change: &ChangeView) -> String {
    match &change.path_encoded {
        Some(encoded) => quoted(&crate::http::unescaped(encoded)),
        None => quoted(change.path.as_bytes()),
    }
}

fn shown(change: &ChangeView) -> String {
    let mut shown = match &change.from {
        Some(from) => format!("{} -> {}", quoted(from.as_bytes()), name(change)),
        None => name(change),
    };
    if change.below > 0 {
        shown.push_str(&format!(" (with all {} below)", change.below));
    }
    if let ("mode", Some(before), Some(after)) =
        (change.kind.as_str(), change.mode_before, change.mode_after)
    {
        shown.push_str(&format!(
            " {:04o} -> {:04o}",
            before & 0o7777,
            after & 0o7777
        ));
    }
    shown
}

fn painted(change: &ChangeView, screen: Screen) -> String {
    let kind = format!("{:8}", change.kind);
    match change.kind.as_str() {
        "added" => screen.green(&kind),
        "removed" => screen.red(&kind),
        _ => screen.yellow(&kind),
    }
}

fn counts(change: &ChangeView) -> String {
    let lines = match (change.added, change.removed) {
        (None, None) => return sizes(change),
        (added, removed) => format!("+{} -{}", added.unwrap_or(0), removed.unwrap_or(0)),
    };
    match sizes(change).as_str() {
        "" => lines,
        sizes => format!("{lines}, {sizes}"),
    }
}

fn sizes(change: &ChangeView) -> String {
    match (change.bytes_before, change.bytes_after) {
        (Some(before), Some(after)) => format!("{} -> {}", bytes(before), bytes(after)),
        (None, Some(only)) | (Some(only), None) => bytes(only),
        (None, None) => String::new(),
    }
}

fn totals(view: &DiffView) -> String {
    let sum = |of: fn(&ChangeView) -> Option<u64>| view.changes.iter().filter_map(of).sum::<u64>();
    let (added, removed) = (sum(|change| change.added), sum(|change| change.removed));
    let entries = match view.changes.len() {
        1 => "1 entry".to_owned(),
        many => format!("{many} entries"),
    };
    format!("{entries}, +{added} -{removed} lines\n")
}
