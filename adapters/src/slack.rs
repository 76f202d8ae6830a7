//! Slack.

pub mod parse;
