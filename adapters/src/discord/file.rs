//! Files, to Discord and from it.
//!
//! Out: in one request with their post, streamed. In: from Discord's file hosts only, without our
//! token. Addresses of files expire; a fresh one is in the message, which stands near the file's id
//! in the channel that the address names.

use std::io;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use mayfly_domain::{
    RemoteFile,
    chat::{Body, CallError, FileOut, Staged},
};
use reqwest::{Method, multipart};
use serde_json::{Value, json};
use serenity::all::{ChannelId, Route};
use tokio_util::io::{ReaderStream, StreamReader};

use super::{
    Discord,
    api::Ask,
    config, content,
    post::{identity, made, quoted},
    thread::{Place, WRITING, number},
};
use crate::{
    http::{call, page},
    json::{id, items, number as integer, text},
};

/// Discord's limit for a request is 25 MiB, servers may have less.
pub(crate) const MOST: u64 = 20 << 20;

impl Discord {
    pub(crate) async fn upload(&self, file: &FileOut, staged: Staged) -> Result<String, CallError> {
        let Staged::Body(body) = staged else {
            return Err(CallError::Refused(
                "a file for Discord is sent with its post, and nothing was kept of it".to_owned(),
            ));
        };
        if file.size > MOST {
            let (has, most) = (file.size >> 20, MOST >> 20);
            return Err(CallError::Refused(format!(
                "the file \"{}\" has {has} MiB, Discord takes {most}",
                file.name
            )));
        }
        let place = Place::of(&file.thread)?;
        let nonce = content::nonce(&file.token);
        let same = |message: &Value| carries(message, file);
        if let Some(id) = self
            .made_before(place, file.unknown_since, &nonce, same)
            .await?
        {
            return Ok(id);
        }
        let channel_id = self
            .ready(place)
            .await
            .map_err(|error| error.told(WRITING))?;
        let mut fields = identity(&nonce);
        fields.insert("allowed_mentions".to_owned(), content::nobody());
        fields.insert(
            "attachments".to_owned(),
            json!([{"id": 0, "filename": file.name, "description": described(file)}]),
        );
        if let Some(reference) = quoted(file.answers.as_ref(), channel_id) {
            fields.insert("message_reference".to_owned(), reference);
        }
        let stream = reqwest::Body::wrap_stream(ReaderStream::new(body));
        let part =
            multipart::Part::stream_with_length(stream, file.size).file_name(file.name.clone());
        let form = multipart::Form::new()
            .text("payload_json", Value::Object(fields).to_string())
            .part("files[0]", part);
        let ask = Ask::new(Method::POST, Route::ChannelMessages { channel_id }).form(form);
        let message = self
            .api
            .call(ask)
            .await
            .map_err(|error| error.told(WRITING))?;
        made(&message)
    }

    pub(crate) async fn download(&self, file: &RemoteFile) -> Result<Body, CallError> {
        let address = file.url.as_deref().ok_or_else(|| {
            CallError::Refused(format!("no address of the file \"{}\" is known", file.name))
        })?;
        match self.get(file, address).await? {
            Got::Body(body) => Ok(body),
            Got::Expired(status) => {
                let fresh = self.fresh(file, address).await?.ok_or_else(|| {
                    CallError::Refused(format!(
                        "the file \"{}\" can no longer be fetched (HTTP status {status}): its message was deleted, or the bot lacks Read Message History",
                        file.name
                    ))
                })?;
                match self.get(file, &fresh).await? {
                    Got::Body(body) => Ok(body),
                    Got::Expired(status) => Err(CallError::NotDone(format!(
                        "HTTP status {status} for a fresh address"
                    ))),
                }
            }
        }
    }

    async fn get(&self, file: &RemoteFile, address: &str) -> Result<Got, CallError> {
        let host = config::origin(address);
        if !host.is_some_and(|host| self.file_hosts.contains(&host)) {
            return Err(CallError::Refused(format!(
                "the file \"{}\" does not lie on one of Discord's file hosts",
                file.name
            )));
        }
        let told = |error| call::told(call::broken(error), str::to_owned);
        let response = self.files.get(address).send().await.map_err(told)?;
        let status = response.status().as_u16();
        match status {
            200 => {}
            403 | 404 => return Ok(Got::Expired(status)),
            429 | 500.. => return Err(CallError::NotDone(format!("HTTP status {status}"))),
            _ => {
                return Err(CallError::Refused(format!(
                    "the file \"{}\" has HTTP status {status}",
                    file.name
                )));
            }
        }
        let kind = response
            .headers()
            .get("content-type")
            .and_then(|kind| kind.to_str().ok())
            .map(str::to_owned);
        let mut content = response.bytes_stream();
        let first = content
            .next()
            .await
            .transpose()
            .map_err(told)?
            .unwrap_or_default();
        if page::is_web_page(kind.as_deref(), &first) && !is_page(file) {
            return Err(CallError::Refused(format!(
                "instead of the file \"{}\" a web page came",
                file.name
            )));
        }
        let all = stream::once(async { Ok(first) })
            .chain(content)
            .map_err(|error| io::Error::other(error.without_url()));
        Ok(Got::Body(Box::pin(StreamReader::new(Box::pin(all)))))
    }

    /// The file's address as its message has it now.
    async fn fresh(&self, file: &RemoteFile, address: &str) -> Result<Option<String>, CallError> {
        let Some(channel_id) = channel_of(address) else {
            return Ok(None);
        };
        let around = number(&file.id)?;
        let route = Route::ChannelMessages { channel_id };
        let ask = Ask::new(Method::GET, route).query(format!("around={around}&limit=100"));
        let messages = self
            .api
            .call(ask)
            .await
            .map_err(|error| error.told("Read Message History"))?;
        let mut files = items(&messages, &[]).flat_map(|message| items(message, &["attachments"]));
        let found = files.find(|found| id(found, &["id"]).as_deref() == Some(&file.id));
        Ok(found
            .and_then(|found| text(found, &["url"]))
            .map(str::to_owned))
    }
}

enum Got {
    Body(Body),
    /// With its status.
    Expired(u16),
}

/// `/attachments/CHANNEL/FILE/NAME`
fn channel_of(address: &str) -> Option<ChannelId> {
    let url = reqwest::Url::parse(address).ok()?;
    let mut parts = url
        .path_segments()?
        .skip_while(|part| *part != "attachments")
        .skip(1);
    number(parts.next()?).ok().map(ChannelId::new)
}

fn is_page(file: &RemoteFile) -> bool {
    let declared = file
        .media_type
        .as_deref()
        .is_some_and(|kind| page::is_web_page(Some(kind), b""));
    let name = file.name.to_ascii_lowercase();
    declared
        || [".html", ".htm", ".xhtml"]
            .iter()
            .any(|ending| name.ends_with(ending))
}

/// Whether a message has this one file. Discord makes names of its own from odd ones.
fn carries(message: &Value, file: &FileOut) -> bool {
    let files: Vec<&Value> = items(message, &["attachments"]).collect();
    let size = i64::try_from(file.size).ok();
    let [found] = files.as_slice() else {
        return false;
    };
    let named = plain(text(found, &["filename"]).unwrap_or_default()) == plain(&file.name);
    let ours = text(found, &["description"]).is_none_or(|told| told == described(file));
    integer(found, &["size"]) == size && named && ours
}

/// For who cannot see it: the name, and the mark that the file is known by.
fn described(file: &FileOut) -> String {
    let name: String = file.name.chars().take(200).collect();
    format!("{name}{}", content::mark(&content::nonce(&file.token)))
}

fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_channel_stands_in_a_files_address() {
        let of = |address| channel_of(address).map(ChannelId::get);
        assert_eq!(
            of("https://cdn.discordapp.com/attachments/500/801/log.txt?ex=1&is=2&hm=3"),
            Some(500)
        );
        assert_eq!(of("http://127.0.0.1:1/cdn/attachments/7/8/a"), Some(7));
        assert_eq!(
            of("https://cdn.discordapp.com/attachments/x/801/log.txt"),
            None
        );
        assert_eq!(of("https://cdn.discordapp.com/icons/1/2.png"), None);
    }
}
