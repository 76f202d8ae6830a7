//! What raw events of the platforms are understood as.

mod discord;
mod hostile;
mod slack;
mod telegram;

use mayfly_domain::{Event, Happened, Posted};
use serde_json::Value;

pub(crate) fn json(raw: &str) -> Value {
    serde_json::from_str(raw).expect("a fixture")
}

#[track_caller]
pub(crate) fn posted(event: Event) -> Posted {
    match event.happened {
        Happened::Posted(posted) => *posted,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn ignored(event: Event, why: &str) {
    assert_eq!(event.happened, Happened::Ignored(why.to_owned()));
}
