//! A request of ours: what a broken one says about the call, its answer read to a limit, and what all
//! of that means for the outbox.

use mayfly_domain::chat::CallError;

use super::{answer::Failure, redact::redact};

/// Most bytes of an answer that are read.
pub const MOST: usize = 4 << 20;

/// No answer came: the call is certainly not done only where no connection was made.
pub fn broken(error: reqwest::Error) -> Failure {
    let connect = error.is_connect();
    let error = error.without_url();
    let mut why = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        why = format!("{why}: {inner}");
        source = inner.source();
    }
    let why = redact(&why, &[]);
    match connect {
        true => Failure::NotDone { why, wait: None },
        false => Failure::Unknown { why },
    }
}

/// The body, if it has at most `most` bytes.
pub async fn body(mut response: reqwest::Response, most: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if body.len() + chunk.len() > most {
            return Err(Failure::Unknown {
                why: format!("the answer has more than {most} bytes"),
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// In the outbox's words. `reason` makes a sentence with the way out of what the platform said. Where
/// chats move, whoever calls looks for that first.
pub fn told(failure: Failure, reason: impl FnOnce(&str) -> String) -> CallError {
    match failure {
        Failure::NotDone {
            why,
            wait: Some(after),
        } => CallError::Limited { reason: why, after },
        Failure::NotDone { why, wait: None } => CallError::NotDone(why),
        Failure::Unknown { why } => CallError::Unknown(why),
        Failure::Permanent { reason: said } => CallError::Refused(reason(&said)),
        Failure::Moved { to } => CallError::Refused(format!("the chat has moved to {to}")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_failure_has_its_word() {
        let wait = Some(Duration::from_secs(3));
        let why = || "x".to_owned();
        let told = |failure| told(failure, |said| format!("{said}: do that"));
        let after = Duration::from_secs(3);
        let reason = why();
        assert_eq!(
            told(Failure::NotDone { why: why(), wait }),
            CallError::Limited { reason, after }
        );
        assert_eq!(
            told(Failure::NotDone {
                why: why(),
                wait: None
            }),
            CallError::NotDone(why())
        );
        assert_eq!(
            told(Failure::Unknown { why: why() }),
            CallError::Unknown(why())
        );
        assert_eq!(
            told(Failure::Permanent { reason: why() }),
            CallError::Refused("x: do that".to_owned())
        );
    }
}
