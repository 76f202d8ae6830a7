//! Reading raw events without trusting their shape: what is not there or of another type is absent.

use serde_json::Value;

/// The text at a path of field names, or none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(value, path)?.as_str()
}

/// An id, which platforms write as text or as a number.
pub(crate) fn id(value: &Value, path: &[&str]) -> Option<String> {
    match at(value, path)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(crate) fn number(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path)?.as_i64()
}

/// True only if it says so.
pub(crate) fn is(value: &Value, path: &[&str]) -> bool {
    at(value, path).and_then(Value::as_bool) == Some(true)
}

/// The items of a list; none if it is no list.
pub(crate) fn items<'a>(value: &'a Value, path: &[&str]) -> impl Iterator<Item = &'a Value> {
    at(value, path)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// What stands there, unless it is null.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let mut value = value;
    for name in path {
        value = value.get(name)?;
    }
    (!value.is_null()).then_some(value)
}
