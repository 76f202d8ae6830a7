//! A value that is not to be seen: tokens and signing secrets.

use std::fmt;

use serde::Deserialize;

/// Neither `Debug` nor an error shows it; [`Secret::expose`] is the one way to read it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The value, for the call that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Secret(value)
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Secret(value.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::http::redact::MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn se_05_a_secret_is_not_shown_by_its_debug_form() {
        let shown = format!("{:?}", Some(Secret::from("hunter2")));
        assert_eq!(shown, "Some([secret])");
    }
}
