//! Where we stand in Discord's stream: stored with the events before it, so that a new connection,
//! also of a new process, goes on where the last stored event ended.

use mayfly_domain::Mark;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Me, NAME};
use crate::json::{id, text};

/// The mark's name.
pub(crate) const MARK: &str = "session";

/// A session of the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Session {
    pub(crate) id: String,
    /// Where it is resumed.
    pub(crate) url: String,
    /// The last dispatch that is stored.
    pub(crate) seq: u64,
    pub(crate) user: String,
    pub(crate) application: String,
}

impl Session {
    /// From a `READY`.
    pub(crate) fn of_ready(frame: &Value) -> Option<Session> {
        Some(Session {
            id: id(frame, &["d", "session_id"])?,
            url: text(frame, &["d", "resume_gateway_url"])?.to_owned(),
            seq: sequence(frame)?,
            user: id(frame, &["d", "user", "id"])?,
            application: id(frame, &["d", "application", "id"])?,
        })
    }

    /// From a mark; none for what an older version wrote.
    pub(crate) fn of_mark(value: &str) -> Option<Session> {
        serde_json::from_str(value).ok()
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            platform: NAME.to_owned(),
            name: MARK.to_owned(),
            value: serde_json::json!(self).to_string(),
        }
    }

    pub(crate) fn me(&self) -> Me {
        Me {
            user: self.user.clone(),
            application: self.application.clone(),
        }
    }
}

/// A dispatch's number.
pub(crate) fn sequence(frame: &Value) -> Option<u64> {
    frame.get("s")?.as_u64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_session_survives_as_its_mark() {
        let ready = json!({"op": 0, "t": "READY", "s": 1, "d": {
            "session_id": "abc", "resume_gateway_url": "wss://x.io",
            "user": {"id": "42"}, "application": {"id": "43"},
        }});
        let session = Session::of_ready(&ready).expect("a session");
        assert_eq!(Session::of_mark(&session.mark().value), Some(session));
        assert_eq!(Session::of_mark("7"), None);
        assert_eq!(Session::of_ready(&json!({"d": {}})), None);
    }
}
