//! What an answer of a platform's HTTP API means.
//!
//! `answer` judges a response: done, certainly not done, perhaps done, never to be done. `call` reads
//! answers of our requests and says it in the outbox's words. `wait` says
//! for how long to be silent, `redact` takes secrets out of what is logged or shown, `page` notices
//! a web page where a file was asked for.

pub mod answer;
pub mod call;
pub mod page;
pub mod redact;
pub mod wait;
