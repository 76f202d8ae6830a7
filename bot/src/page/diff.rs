//! A difference as people read it: `git`'s own form, one box per file, lines by colour and sign.

use maud::{Markup, html};
use mayfly_orchestrator::{snapshot::Diff, view::TickView};

use super::text::beginning;
use crate::render;

/// Bytes of a difference on a page.
const BYTES: usize = 256 << 10;

/// What a tick changed.
pub(super) fn show(diff: &Diff, tick: &TickView) -> Markup {
    let patch = render::patch(diff);
    let patch = render::printable(&String::from_utf8_lossy(&patch));
    let (shown, cut) = beginning(&patch, BYTES);
    html! {
        @if patch.is_empty() { p.mute { "Nothing." } }
        @for file in files(shown) { (one(&file)) }
        @if cut {
            p.mute { "The rest is not shown: " code { "mayfly agent diff " (tick.agent.short()) " " (tick.id.short()) } }
        }
    }
}

struct OneFile<'a> {
    name: String,
    lines: Vec<&'a str>,
}

/// A line of a file never begins in the first column, so no content is taken for a head.
fn files(patch: &str) -> Vec<OneFile<'_>> {
    let mut files: Vec<OneFile<'_>> = Vec::new();
    for line in patch.lines() {
        match (line.strip_prefix("diff --git "), files.last_mut()) {
            (Some(names), _) => files.push(OneFile {
                name: name(names),
                lines: Vec::new(),
            }),
            (None, Some(file)) if !line.starts_with("# ") => file.lines.push(line),
            _ => files.push(OneFile {
                name: line.trim_start_matches("# ").to_owned(),
                lines: Vec::new(),
            }),
        }
    }
    files
}

/// The second of `a/NAME b/NAME`, each in quotes where its bytes need it.
fn name(both: &str) -> String {
    let at = match both.ends_with('"') {
        true => both.rfind(" \"b/"),
        // But for renames, whose lines have both names, the two are the same.
        false => {
            let middle = Some(both.len() / 2);
            let middle = middle.filter(|at| both.get(*at..).is_some_and(|b| b.starts_with(" b/")));
            middle.or(both.rfind(" b/"))
        }
    };
    let second = at.map_or(both, |at| &both[at + 1..]);
    match second.strip_prefix("\"b/") {
        Some(rest) => format!("\"{rest}"),
        None => second.strip_prefix("b/").unwrap_or(second).to_owned(),
    }
}

fn one(file: &OneFile<'_>) -> Markup {
    html! {
        div.file {
            h3 { (file.name) }
            @if !file.lines.is_empty() {
                // It scrolls, so it must be reached by keyboard.
                pre.diff tabindex="0" aria-label={ "Changes of " (file.name) } {
                    @for line in &file.lines { span class=(class(line)) { (line) "\n" } }
                }
            }
        }
    }
}

fn class(line: &str) -> &'static str {
    match line.as_bytes() {
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => "head",
        [b'+', ..] => "add",
        [b'-', ..] => "del",
        [b'@', ..] => "hunk",
        [b' ', ..] => "same",
        _ => "head",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_their_heads_alone() {
        let patch = "diff --git a/f b/f\nindex 1\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-diff --git a/x b/x\n+y\n\
                     diff --git \"a/work/a\\n\" \"b/work/a\\n\"\nnew file mode 100644\n# 1 more entry differs and is not listed\n";
        let files = files(patch);
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "f",
                "\"work/a\\n\"",
                "1 more entry differs and is not listed"
            ]
        );
        assert_eq!(files[0].lines.len(), 6);
        assert_eq!(name("a/a b/c b/a b/c"), "a b/c");
    }
}
