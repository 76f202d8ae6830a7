//! What a form sends: urlencoded, of limited size, in time, with the key of the session's forms.

use axum::{
    RequestExt as _,
    extract::{FromRequest, Request, rejection::FormRejection},
};
use serde::{Deserialize, de::DeserializeOwned};
use subtle::ConstantTimeEq as _;

use super::{layout::Refused, sign_in::Session};
use crate::http::{BODY_TIME, Problem};

/// The name of the key's field.
pub(super) const KEY: &str = "form_key";

/// A form's fields.
pub(super) struct Form<T>(pub(super) T);

#[derive(Deserialize)]
struct Keyed<T> {
    #[serde(default)]
    form_key: String,
    #[serde(flatten)]
    fields: T,
}

impl<S: Send + Sync, T: DeserializeOwned + 'static> FromRequest<S> for Form<T> {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let session = request.extensions().get::<Session>().cloned();
        let read = request.extract::<axum::Form<Keyed<T>>, _>();
        let read = tokio::time::timeout(BODY_TIME, read).await.map_err(|_| {
            let seconds = BODY_TIME.as_secs();
            let told = format!("the form did not come within {seconds} s: send it again");
            Problem::new("timeout", told)
        })?;
        let axum::Form(Keyed { form_key, fields }) = read.map_err(problem)?;
        check(&session.ok_or_else(wrong_key)?, &form_key)?;
        Ok(Form(fields))
    }
}

/// Whether a key is that of the session's forms.
pub(super) fn check(session: &Session, key: &str) -> Result<(), Problem> {
    match bool::from(session.form.as_bytes().ct_eq(key.as_bytes())) {
        true => Ok(()),
        false => Err(wrong_key()),
    }
}

pub(super) fn wrong_key() -> Problem {
    Problem::new(
        "forbidden",
        "this form is of an earlier session or another page: nothing was done; reload it, then send it again",
    )
}

fn problem(rejection: FormRejection) -> Problem {
    let kind = match rejection.status().as_u16() {
        413 => "too-large",
        415 => "media-type",
        _ => "invalid",
    };
    Problem::new(kind, rejection.body_text())
}
