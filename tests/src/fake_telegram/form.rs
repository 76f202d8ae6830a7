//! The parameters of a call: from the query, a form, JSON, or parts with files.

use std::collections::HashMap;

use http_body_util::Full;
use serde_json::Value;

use crate::fake::Call;

/// One call's parameters.
#[derive(Debug, Default)]
pub(super) struct Form {
    values: HashMap<String, Value>,
    files: HashMap<String, (String, Vec<u8>)>,
}

impl Form {
    /// A text, or a number as text.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        match self.values.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }

    /// A whole number, also where it came as text.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.text(name)?.parse().ok()
    }

    /// An object or list, also where it came as text.
    pub(super) fn value(&self, name: &str) -> Option<Value> {
        match self.values.get(name)? {
            Value::String(text) => serde_json::from_str(text).ok(),
            other => Some(other.clone()),
        }
    }

    /// A file that came with the call: by its own name, or as `attach://part`.
    pub(super) fn file(&self, name: &str) -> Option<&(String, Vec<u8>)> {
        let part = self.text(name);
        let part = part
            .as_deref()
            .and_then(|text| text.strip_prefix("attach://"));
        self.files.get(part.unwrap_or(name))
    }
}

/// Reads them.
pub(super) async fn read(call: &Call) -> Result<Form, String> {
    let mut form = Form::default();
    form.pairs(call.uri().query().unwrap_or_default());
    let kind = call.headers().get("content-type");
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let body = call.body();
    if kind.starts_with("application/json") && !body.is_empty() {
        let given: HashMap<String, Value> =
            serde_json::from_slice(body).map_err(|error| format!("can't parse JSON: {error}"))?;
        form.values.extend(given);
    } else if kind.starts_with("application/x-www-form-urlencoded") {
        form.pairs(std::str::from_utf8(body).map_err(|error| error.to_string())?);
    } else if kind.starts_with("multipart/form-data") {
        form.parts(kind, body.clone())
            .await
            .map_err(|error| error.to_string())?;
    }
    Ok(form)
}

impl Form {
    fn pairs(&mut self, encoded: &str) {
        for (name, value) in form_urlencoded::parse(encoded.as_bytes()) {
            let value = Value::String(value.into_owned());
            self.values.insert(name.into_owned(), value);
        }
    }

    async fn parts(&mut self, kind: &str, body: hyper::body::Bytes) -> Result<(), multer::Error> {
        let boundary = multer::parse_boundary(kind)?;
        let stream = http_body_util::BodyStream::new(Full::new(body));
        let stream = futures_util::StreamExt::map(stream, |frame| {
            frame.map(|frame| frame.into_data().unwrap_or_default())
        });
        let mut parts = multer::Multipart::new(stream, boundary);
        while let Some(part) = parts.next_field().await? {
            let name = part.name().unwrap_or_default().to_owned();
            let file = part.file_name().map(str::to_owned);
            let bytes = part.bytes().await?.to_vec();
            match file {
                Some(file) => {
                    self.files.insert(name, (file, bytes));
                }
                None => {
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    self.values.insert(name, Value::String(text));
                }
            }
        }
        Ok(())
    }
}
