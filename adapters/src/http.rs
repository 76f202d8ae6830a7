//! What an answer of a platform's HTTP API means, without talking to one.
//!
//! `answer` judges a response: done, certainly not done, perhaps done, never to be done. `wait` says
//! for how long to be silent, `redact` takes secrets out of what is logged or shown, `page` notices
//! a web page where a file was asked for.

pub mod answer;
pub mod page;
pub mod redact;
pub mod wait;
