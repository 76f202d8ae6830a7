//! What the form under a conversation brings: a text, and files. Files are stored as they come, and
//! nothing is before the form's key was right.

use axum::{
    extract::{
        FromRequest as _, Multipart, Request,
        multipart::{Field, MultipartError},
    },
    http::header,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use mayfly_domain::{MAX_TEXT, NewFile, TextError};
use serde::Deserialize;

use super::{
    Pages,
    form::{self, Form},
    layout::Refused,
    sign_in::Session,
    text::typed,
};
use crate::http::{BODY_TIME, Problem, receive};

/// See the module.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Said {
    pub(super) text: String,
    /// The form's own key: a second press is the first one again.
    #[serde(default)]
    pub(super) once: Option<String>,
    #[serde(skip)]
    pub(super) files: Vec<NewFile>,
}

/// Reads either encoding of the form.
pub(super) async fn read(
    pages: &Pages,
    session: &Session,
    request: Request,
) -> Result<Said, Refused> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let in_parts = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/form-data"));
    let said = match in_parts {
        true => parts(pages, session, request).await?,
        false => Form::<Said>::from_request(request, &()).await?.0,
    };
    Ok(Said {
        text: typed(&said.text),
        ..said
    })
}

async fn parts(pages: &Pages, session: &Session, request: Request) -> Result<Said, Refused> {
    let mut parts = Multipart::from_request(request, &())
        .await
        .map_err(|error| Problem::new("invalid", error.body_text()))?;
    let mut said = Said::default();
    let mut is_ours = false;
    while let Some(mut part) = in_time(parts.next_field()).await? {
        let name = part.name().unwrap_or_default().to_owned();
        if name == form::KEY {
            form::check(session, &text(&mut part).await?)?;
            is_ours = true;
            continue;
        }
        if !is_ours {
            break;
        }
        match name.as_str() {
            "text" => said.text = text(&mut part).await?,
            "once" => said.once = Some(text(&mut part).await?),
            _ => said.files.extend(file(pages, &said, &mut part).await?),
        }
    }
    match is_ours {
        true => Ok(said),
        false => Err(form::wrong_key().into()),
    }
}

async fn text(part: &mut Field<'_>) -> Result<String, Refused> {
    let mut bytes = Vec::new();
    while let Some(piece) = in_time(part.chunk()).await? {
        bytes.extend_from_slice(&piece);
        // Each line end has one byte more than it will have.
        if bytes.len() > 2 * MAX_TEXT {
            return Err(Problem::from(TextError::TooLong(bytes.len())).into());
        }
    }
    let told = |error: std::string::FromUtf8Error| {
        Problem::from(TextError::NotUtf8(error.utf8_error().valid_up_to()))
    };
    Ok(String::from_utf8(bytes).map_err(told)?)
}

/// None for the empty part that a browser sends where no file was chosen.
async fn file(
    pages: &Pages,
    said: &Said,
    part: &mut Field<'_>,
) -> Result<Option<NewFile>, Refused> {
    let name = part.file_name().unwrap_or_default().to_owned();
    let first = in_time(part.chunk()).await?;
    if name.is_empty() && first.as_ref().is_none_or(|piece| piece.is_empty()) {
        return Ok(None);
    }
    let limits = pages.commands.attachment_limits();
    let count = limits.check_count(said.files.len() + 1);
    count.map_err(mayfly_orchestrator::command::RequestError::from)?;
    let mut upload = pages.commands.begin_upload(None).await?;
    let rest = part.map_err(|error| error.body_text());
    let content = stream::iter(first.map(Ok)).chain(rest);
    receive(&mut upload, content, &pages.stopping).await?;
    let blob = upload.finish().await?.blob;
    Ok(Some(NewFile { name, blob }))
}

async fn in_time<T>(next: impl Future<Output = Result<T, MultipartError>>) -> Result<T, Problem> {
    let next = tokio::time::timeout(BODY_TIME, next).await;
    let next = next.map_err(|_| Problem::new("timeout", "the form stands still: send it again"))?;
    next.map_err(|error| {
        let told = format!("the form did not come whole: {}", error.body_text());
        Problem::new("invalid", told)
    })
}
