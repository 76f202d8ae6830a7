//! Differences between states.

use mayfly_orchestrator::view::{ChangeView, DiffView};

use super::{bytes, one_line};
use crate::screen::Screen;

pub(crate) fn diff(view: &DiffView, stat: bool, screen: Screen) -> String {
    if view.changes.is_empty() {
        return "nothing changed\n".to_owned();
    }
    let line = |change: &ChangeView| {
        let kind = painted(change, screen);
        let path = one_line(&change.path, 4096);
        match stat {
            true => format!("{kind} {path}  {}\n", counts(change)),
            false => format!("{kind} {path}\n"),
        }
    };
    let mut text: String = view.changes.iter().map(line).collect();
    if stat {
        text.push_str(&totals(&view.changes));
    }
    text
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

fn totals(changes: &[ChangeView]) -> String {
    let sum = |of: fn(&ChangeView) -> Option<u64>| changes.iter().filter_map(of).sum::<u64>();
    let (added, removed) = (sum(|change| change.added), sum(|change| change.removed));
    let entries = match changes.len() {
        1 => "1 entry".to_owned(),
        many => format!("{many} entries"),
    };
    format!("{entries}, +{added} -{removed} lines\n")
}
