//! `mayfly check`.

use crate::{cli::Context, config::Entry, exit::Exit, screen::Screen};

pub(crate) fn run(context: &Context) -> Exit {
    context
        .screen
        .show(&context.loaded.entries, |entries, screen| {
            table(entries, screen)
        });
    Exit::Ok
}

fn table(entries: &[Entry], screen: Screen) -> String {
    let line = |entry: &Entry| {
        let value = match &entry.value {
            serde_json::Value::Null => "(none)".to_owned(),
            value => value.to_string(),
        };
        let origin = screen.dim(&format!("# {}", entry.origin));
        format!("{} = {value}  {origin}\n", entry.key)
    };
    entries.iter().map(line).collect()
}
