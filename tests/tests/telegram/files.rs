//! Files out and in.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    pin::Pin,
    task::{Context, Poll},
    thread,
};

use mayfly_adapters::telegram::{Telegram, config::Config};
use mayfly_domain::{
    RemoteFile,
    chat::{CallError, FileOut, Platform as _, Staged},
};
use mayfly_tests::{
    fake::Fault,
    fake_telegram::{FakeTelegram, Person},
};
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use crate::{Fake, body, bot, chat, config, post_id, say, texts, topic};

const ANN: Person = Person(7);
const GROUP: i64 = -1_001_234_567_890;

fn out(thread: &mayfly_domain::ThreadKey, name: &str, size: u64) -> FileOut {
    FileOut {
        thread: thread.clone(),
        token: "t".to_owned(),
        name: name.to_owned(),
        size,
        answers: None,
        unknown_since: None,
    }
}

fn remote(id: &str, name: &str) -> RemoteFile {
    RemoteFile {
        id: id.to_owned(),
        name: name.to_owned(),
        size: None,
        media_type: None,
        url: None,
    }
}

async fn send(bot: &Telegram, file: &FileOut, content: &'static [u8]) -> Result<String, CallError> {
    let staged = bot.stage_file(file, body(content)).await?;
    bot.post_file(file, staged).await
}

/// A file that a person sent, as the update names it.
fn sent(fake: &Fake, name: &str, content: &[u8]) -> RemoteFile {
    fake.platform.private(ANN);
    fake.platform.send_file(ANN.0, ANN, "see", name, content);
    let update = fake.platform.waiting().pop().expect("an update");
    let id = &update["message"]["document"]["file_id"];
    remote(id.as_str().expect("an id"), name)
}

#[tokio::test]
async fn a_file_is_shown_where_it_belongs_under_its_name() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    fake.platform.forum(GROUP, &[77]);
    let question = fake.platform.write_in_topic(GROUP, 77, ANN, "send it");
    let name = "größe \"a\\b\" \u{1f600}.txt";
    let mut file = out(&topic(GROUP, 77), name, 6);
    file.answers = Some(post_id(GROUP, question));
    send(&bot, &file, b"report").await.expect("sent");
    let shown = fake.platform.shown(GROUP).pop().expect("a post");
    let expected = "größe _a_b_ \u{1f600}.txt".to_owned();
    assert_eq!(shown.file, Some((expected, b"report".to_vec())));
    assert_eq!((shown.topic, shown.answers), (Some(77), Some(question)));
}

#[tokio::test]
async fn fi_02_a_file_that_cannot_be_sent_is_refused_before_it_is_and_takes_no_text_with_it() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let here = chat(fake.platform.private(ANN));
    for (size, said) in [(0, "empty"), (bot.max_file() + 1, "50000000")] {
        let refused = send(&bot, &out(&here, "big.mp4", size), b"").await;
        let Err(CallError::Refused(why)) = refused else {
            panic!("{refused:?}");
        };
        assert!(why.contains(said) && why.contains("big.mp4"), "{why}");
    }
    assert_eq!(fake.calls("senddocument").len(), 0);
    say(&bot, &here, "the text").await.expect("posted");
    assert_eq!(texts(&fake, ANN.0), ["the text"]);
}

#[tokio::test]
async fn a_file_for_a_topic_that_is_gone_comes_to_the_chat_at_the_next_try() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    fake.platform.forum(GROUP, &[]);
    let file = out(&topic(GROUP, 77), "report.txt", 6);
    let first = send(&bot, &file, b"report").await;
    assert!(matches!(first, Err(CallError::NotDone(_))), "{first:?}");
    send(&bot, &file, b"report")
        .await
        .expect("sent to the chat");
    assert_eq!(fake.platform.shown(GROUP).len(), 1);
}

/// Gives some of a file, then breaks.
struct Breaks(usize);

impl AsyncRead for Breaks {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.0 == 0 {
            return Poll::Ready(Err(std::io::Error::other("the disk is gone")));
        }
        let some = buffer.remaining().min(self.0);
        buffer.put_slice(&vec![7; some]);
        self.0 -= some;
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_file_that_was_not_sent_to_its_end_is_certainly_not_shown() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let here = chat(fake.platform.private(ANN));
    let file = out(&here, "report.bin", 1 << 20);
    let staged = Staged::Body(Box::pin(Breaks(1 << 19)));
    let broken = bot.post_file(&file, staged).await;
    assert!(matches!(broken, Err(CallError::NotDone(_))), "{broken:?}");
    assert_eq!(texts(&fake, ANN.0), Vec::<String>::new());
}

#[tokio::test]
async fn a_persons_file_is_fetched_whole() {
    let fake = FakeTelegram::start();
    let content: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    let file = sent(&fake, "data.bin", &content);
    let mut found = Vec::new();
    let mut body = bot(&fake).fetch(&file).await.expect("fetched");
    body.read_to_end(&mut found).await.expect("read");
    assert!(found == content);
    let empty = sent(&fake, "empty.txt", b"");
    let mut body = bot(&fake).fetch(&empty).await.expect("fetched");
    assert_eq!(body.read_to_end(&mut found).await.expect("read"), 0);
}

#[tokio::test]
async fn fi_02_a_file_too_large_to_be_fetched_says_so() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let mut named = remote("file1", "video.mp4");
    named.size = Some(44 << 20);
    let unnamed = sent(&fake, "video.mp4", &vec![0; (20 << 20) + 1]);
    for file in [named, unnamed] {
        let refused = bot.fetch(&file).await.map(drop);
        let Err(CallError::Refused(why)) = refused else {
            panic!("{refused:?}");
        };
        assert!(why.contains("20 MB"), "{why}");
    }
    assert_eq!(fake.calls("file").len(), 0);
}

#[tokio::test]
async fn fi_01_a_web_page_in_place_of_a_file_is_refused() {
    let fake = FakeTelegram::start();
    let bot = bot(&fake);
    let page = || Fault::Refused(200, "\n<!DOCTYPE html><title>Log in</title>".to_owned());
    let picture = sent(&fake, "cat.png", b"\x89PNG");
    fake.fault("file", [page()]);
    let refused = bot.fetch(&picture).await.map(drop);
    assert!(
        matches!(&refused, Err(CallError::Refused(why)) if why.contains("cat.png")),
        "{refused:?}"
    );
    let wanted = sent(&fake, "index.html", b"<html>");
    fake.fault("file", [page()]);
    bot.fetch(&wanted).await.expect("a page was sent");
}

/// Answers each connection so, once it has read something, and tells what it read.
fn answers(with: String) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let (told, read) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut some = [0; 4096];
            let length = stream.read(&mut some).unwrap_or(0);
            let asked = String::from_utf8_lossy(&some[..length]).into_owned();
            let _ = stream.write_all(with.as_bytes());
            if told.send(asked).is_err() {
                return;
            }
        }
    });
    (address, read)
}

fn over_http(status: &str, head: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn fi_06_the_token_goes_to_one_host_whatever_is_answered() {
    let fake = FakeTelegram::start();
    let (elsewhere, stolen) = answers(over_http("200 OK", "", "{}"));
    let redirect = over_http("302 Found", &format!("location: {elsewhere}/x\r\n"), "");
    let (api, _asked) = answers(redirect);
    let redirected = Telegram::new(&Config {
        api: api.parse().expect("an address"),
        ..config(&fake)
    });
    let redirected = redirected.expect("a bot");
    let here = chat(ANN.0);
    assert!(say(&redirected, &here, "x").await.is_err());
    assert!(redirected.fetch(&remote("file1", "a.txt")).await.is_err());
    // A path that tries to be an address stays a path.
    for path in [
        "//evil.test/x",
        "../../x",
        "@evil.test/x",
        "https://evil.test/x",
        "/var/lib/telegram/x",
        "a?b#c",
    ] {
        let answer = format!(r#"{{"ok":true,"result":{{"file_id":"f","file_path":"{path}"}}}}"#);
        fake.fault("getfile", [Fault::Refused(200, answer)]);
        let refused = bot(&fake).fetch(&remote("f", "a.txt")).await;
        assert!(refused.is_err(), "{path}");
    }
    assert_eq!(stolen.try_recv().ok(), None);
}
