//! The arguments of a call: from the query, a form or JSON; the token from wherever it stands.

use serde_json::{Map, Value};

use crate::fake::Call;

/// One call's arguments.
#[derive(Debug, Default)]
pub(super) struct Args {
    values: Map<String, Value>,
    pub(super) token: Option<String>,
}

impl Args {
    /// A text, or a number as text; an empty one is none.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.values.get(name)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }

    /// An object or list, also where it came as text.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        match self.values.get(name)? {
            Value::Null => None,
            Value::String(text) => serde_json::from_str(text).ok(),
            other => Some(other.clone()),
        }
    }

    /// True, 1 or `true`.
    pub(super) fn is(&self, name: &str) -> bool {
        matches!(self.text(name).as_deref(), Some("true" | "1"))
    }
}

/// Reads them.
pub(super) fn read(call: &Call) -> Args {
    let mut args = Args::default();
    args.pairs(call.uri().query().unwrap_or_default().as_bytes());
    let header = |name: &str| {
        let value = call.headers().get(name)?;
        value.to_str().ok()
    };
    let kind = header("content-type").unwrap_or_default();
    if kind.starts_with("application/json") {
        let given: Map<String, Value> = serde_json::from_slice(call.body()).unwrap_or_default();
        args.values.extend(given);
    } else if kind.starts_with("application/x-www-form-urlencoded") {
        args.pairs(call.body());
    }
    let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    args.token = bearer.map(str::to_owned).or_else(|| args.text("token"));
    args
}

impl Args {
    fn pairs(&mut self, encoded: &[u8]) {
        for (name, value) in form_urlencoded::parse(encoded) {
            let value = Value::String(value.into_owned());
            self.values.insert(name.into_owned(), value);
        }
    }
}
