//! Files out and in.

use std::io::Cursor;

use mayfly_adapters::clock::unix_ms;
use mayfly_domain::{
    RemoteFile, ThreadKey,
    chat::{Body, CallError, FileOut, Platform, Staged},
};
use mayfly_tests::{
    fake::Fault,
    fake_discord::{ANN, FakeDiscord, Running},
};
use tokio::io::AsyncReadExt as _;

use super::{adapter, direct, open, start, texts, thread};

fn body(bytes: &[u8]) -> Staged {
    Staged::Body(Box::pin(Cursor::new(bytes.to_vec())))
}

fn file(thread: &ThreadKey, name: &str, bytes: &[u8]) -> FileOut {
    FileOut {
        thread: thread.clone(),
        token: format!("token of {name}"),
        name: name.to_owned(),
        size: bytes.len() as u64,
        answers: None,
        unknown_since: None,
    }
}

fn files(fake: &Running, channel: u64) -> Vec<String> {
    fake.shown(channel)
        .into_iter()
        .flat_map(|shown| shown.files)
        .collect()
}

#[tokio::test]
async fn fm_07_a_file_whose_outcome_is_unknown_is_seen_once() {
    let (fake, discord) = start();
    let content = vec![7u8; 1 << 20];
    for (n, fault) in [Fault::Cut, Fault::Lost, Fault::Refused(503, String::new())]
        .into_iter()
        .enumerate()
    {
        for long_ago in [false, true] {
            let channel = fake.channel("files");
            let asked = fake.mention(channel, ANN, "a file please");
            let name = format!("räp ort-{n}-{long_ago}.bin");
            let mut out = file(&thread(channel, asked), &name, &content);
            fake.rest.fault("post", [fault.clone()]);
            let error = discord
                .post_file(&out, body(&content))
                .await
                .expect_err("a fault");
            assert!(open(&error), "{fault:?}: {error}");
            out.unknown_since = Some(unix_ms());
            if long_ago {
                fake.forget_nonces();
                out.unknown_since = Some(unix_ms() - 600_000);
            }
            let staged = discord
                .stage_file(&out, Box::pin(Cursor::new(content.clone())))
                .await
                .expect("staged");
            let id = adapter(&fake)
                .post_file(&out, staged)
                .await
                .expect("a post");
            assert_eq!(files(&fake, asked), [name.as_str()], "{fault:?}");
            let shown = fake.shown(asked);
            assert!(
                shown
                    .iter()
                    .any(|shown| shown.id.to_string() == id && !shown.pinged)
            );
            assert_eq!(fake.content(&name).as_deref(), Some(&content[..]));
        }
    }
}

#[tokio::test]
async fn fi_02_a_file_that_is_too_large_is_refused_before_it_is_sent() {
    let (fake, discord) = start();
    let channel = fake.direct();
    let mut out = file(&direct(channel), "large.mp3", b"x");
    out.size = discord.max_file() + 1;
    let refused = discord.post_file(&out, body(b"x")).await;
    assert!(
        matches!(&refused, Err(CallError::Refused(said)) if said.contains("20")),
        "{refused:?}"
    );
    assert!(fake.rest.calls("post").is_empty());
    // A server that allows less says so itself.
    let out = file(&direct(channel), "less.mp3", b"x");
    fake.rest.fault(
        "post",
        [Fault::Refused(
            413,
            r#"{"message":"Request entity too large","code":40005}"#.to_owned(),
        )],
    );
    let refused = discord.post_file(&out, body(b"x")).await;
    assert!(
        matches!(&refused, Err(CallError::Refused(said)) if said.contains("larger")),
        "{refused:?}"
    );
    // A file at the limit arrives whole.
    let whole = vec![1u8; usize::try_from(discord.max_file()).expect("a size")];
    discord
        .post_file(&file(&direct(channel), "whole.mp3", &whole), body(&whole))
        .await
        .expect("a post");
    assert_eq!(
        fake.content("whole.mp3").map(|content| content.len()),
        Some(whole.len())
    );
    assert!(texts(&fake, channel).iter().all(String::is_empty));
}

/// A body that ends before its announced size must not become a file.
#[tokio::test]
async fn a_file_that_breaks_off_is_not_shown() {
    let (fake, discord) = start();
    let channel = fake.direct();
    let mut out = file(&direct(channel), "half.bin", &[0; 1000]);
    out.size = 2000;
    discord
        .post_file(&out, body(&[0; 1000]))
        .await
        .expect_err("half a file");
    assert!(files(&fake, channel).is_empty());
}

/// The file of a person's message, as the event told of it.
async fn sent(fake: &Running, channel: u64, name: &str, kind: &str, bytes: &[u8]) -> RemoteFile {
    let message = fake.upload(channel, ANN, "look", name, kind, bytes);
    let address = format!(
        "{}/api/v10/channels/{channel}/messages/{message}",
        fake.rest.url()
    );
    let client = reqwest_json(&address).await;
    let found = &client["attachments"][0];
    RemoteFile {
        id: found["id"].as_str().expect("an id").to_owned(),
        name: name.to_owned(),
        size: Some(bytes.len() as u64),
        media_type: Some(kind.to_owned()),
        url: found["url"].as_str().map(str::to_owned),
    }
}

async fn reqwest_json(address: &str) -> serde_json::Value {
    let token = mayfly_tests::fake_discord::token();
    let (host, path) = address
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .expect("an address");
    let mut stream = tokio::net::TcpStream::connect(host)
        .await
        .expect("the fake");
    let request = format!(
        "GET /{path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bot {token}\r\nconnection: close\r\n\r\n"
    );
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes())
        .await
        .expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    serde_json::from_str(answer.split_once("\r\n\r\n").expect("a body").1).expect("JSON")
}

async fn whole(mut body: Body) -> Vec<u8> {
    let mut content = Vec::new();
    body.read_to_end(&mut content).await.expect("a whole file");
    content
}

#[tokio::test]
async fn fi_06_files_come_from_discords_hosts_without_our_token() {
    let (fake, discord) = start();
    let channel = fake.channel("files");
    let content: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
    let file = sent(
        &fake,
        channel,
        "data.bin",
        "application/octet-stream",
        &content,
    )
    .await;
    // The fake refuses a download that carries a token.
    assert_eq!(
        whole(discord.fetch(&file).await.expect("a file")).await,
        content
    );
    let own = file.url.clone().expect("an address");
    let other = FakeDiscord::start();
    let foreign = own.replace(&fake.rest.url(), &other.rest.url());
    let at = own.strip_prefix("http://").expect("an address");
    for address in [
        foreign,
        format!("http://x@{at}"),
        own.replace("127.0.0.1", "127.0.0.1.evil.test"),
        "file:///etc/hostname".to_owned(),
        String::new(),
    ] {
        let file = RemoteFile {
            url: Some(address.clone()),
            ..file.clone()
        };
        let refused = discord.fetch(&file).await.err();
        assert!(
            matches!(refused, Some(CallError::Refused(_))),
            "{address}: {refused:?}"
        );
    }
    assert!(other.rest.calls("file").is_empty());
}

#[tokio::test]
async fn fi_01_an_expired_address_is_renewed_and_a_web_page_is_no_file() {
    let (fake, discord) = start();
    let channel = fake.channel("files");
    let file = sent(&fake, channel, "notes.txt", "text/plain", b"remember").await;
    fake.expire_files();
    assert_eq!(
        whole(discord.fetch(&file).await.expect("a fresh address")).await,
        b"remember"
    );
    let picture = sent(
        &fake,
        channel,
        "cat.png",
        "image/png",
        b"<!DOCTYPE html><html>log in</html>",
    )
    .await;
    let refused = discord.fetch(&picture).await.err();
    assert!(
        matches!(&refused, Some(CallError::Refused(said)) if said.contains("web page")),
        "{refused:?}"
    );
    let page = sent(
        &fake,
        channel,
        "report.html",
        "text/html",
        b"<html>figures</html>",
    )
    .await;
    assert_eq!(
        whole(discord.fetch(&page).await.expect("a page that was sent")).await,
        b"<html>figures</html>"
    );
    // Its message is gone: nobody knows another address.
    fake.expire_files();
    let message = fake.shown(channel)[0].id;
    fake.delete(message);
    let refused = discord.fetch(&file).await.err();
    assert!(
        matches!(&refused, Some(CallError::Refused(said)) if said.contains("no longer")),
        "{refused:?}"
    );
    let broken = sent(&fake, channel, "later.txt", "text/plain", b"later").await;
    fake.rest
        .fault("file", [Fault::Refused(503, String::new())]);
    assert!(matches!(
        discord.fetch(&broken).await.err(),
        Some(CallError::NotDone(_))
    ));
}
