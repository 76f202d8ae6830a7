//! Files, out and in.

use std::time::Duration;

use mayfly_domain::{
    RemoteFile,
    chat::{Body, CallError, FileOut, Platform as _, Staged},
};
use mayfly_tests::{fake::Fault, fake_slack::Running};
use tokio::io::AsyncReadExt as _;

use crate::{PATIENCE, bot, bot_at, fake, pace, thread, until_done};

const CONTENT: &[u8] = b"a report";

fn out(root: &str, token: &str) -> FileOut {
    FileOut {
        thread: thread("C1", root),
        token: token.to_owned(),
        name: "report.txt".to_owned(),
        size: CONTENT.len() as u64,
        answers: None,
        unknown_since: None,
    }
}

fn body() -> Body {
    Box::pin(CONTENT)
}

fn kept(staged: Staged) -> String {
    match staged {
        Staged::Kept(id) => id,
        Staged::Body(_) => panic!("Slack keeps files"),
    }
}

#[tokio::test]
async fn a_file_is_seen_in_its_thread_when_it_is_posted_and_not_before() {
    let fake = fake();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> report");
    let file = out(&root, "f-1");
    let id = kept(slack.stage_file(&file, body()).await.unwrap());
    assert!(fake.by_bot("C1", Some(&root)).is_empty());
    fake.slow_shares(2);
    let ts = slack.post_file(&file, Staged::Kept(id)).await.unwrap();
    let shown = fake.by_bot("C1", Some(&root));
    assert_eq!((shown.len(), &shown[0].ts), (1, &ts));
    assert_eq!(
        shown[0].files,
        [("report.txt".to_owned(), CONTENT.to_vec())]
    );
    slack.remove(&file.thread, &ts).await.unwrap();
    assert!(fake.by_bot("C1", Some(&root)).is_empty());
}

#[tokio::test]
async fn a_file_whose_message_slack_does_not_tell_goes_by_its_own_id() {
    let fake = fake();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> report");
    let file = out(&root, "f-1");
    let staged = slack.stage_file(&file, body()).await.unwrap();
    fake.hide_shares();
    let id = slack.post_file(&file, staged).await.unwrap();
    assert!(id.starts_with('F'), "{id}");
    slack.remove(&file.thread, &id).await.unwrap();
    slack.remove(&file.thread, &id).await.unwrap();
    assert!(fake.by_bot("C1", Some(&root)).is_empty());
}

#[tokio::test]
async fn fm_07_whatever_goes_wrong_with_a_file_it_is_seen_once() {
    let faults = [
        Fault::Cut,
        Fault::Lost,
        Fault::TooMany(1),
        Fault::Refused(500, "oops".to_owned()),
    ];
    let fake = fake();
    for step in [
        "files.getUploadURLExternal",
        "upload",
        "files.completeUploadExternal",
        "files.info",
    ] {
        for (n, fault) in faults.iter().enumerate() {
            let slack = bot(&fake);
            let root = fake.write("C1", "U1", "<@U0BOT> report");
            let file = out(&root, &format!("f-{step}-{n}"));
            fake.fault(step, [fault.clone()]);
            let (staged, _) = until_done(|_| slack.stage_file(&file, body())).await;
            let id = kept(staged);
            until_done(|unknown_since| {
                let file = FileOut {
                    unknown_since,
                    ..file.clone()
                };
                let (slack, id) = (&slack, id.clone());
                async move { slack.post_file(&file, Staged::Kept(id)).await }
            })
            .await;
            let shown = fake.by_bot("C1", Some(&root));
            assert_eq!(shown.len(), 1, "{step} {fault:?}");
            assert_eq!(shown[0].files.len(), 1, "{step} {fault:?}");
        }
    }
}

#[tokio::test]
async fn a_file_that_slack_has_and_shows_nowhere_is_never_posted_again() {
    let fake = fake();
    let slack = bot(&fake);
    let root = fake.write("C1", "U1", "<@U0BOT> report");
    let mut file = out(&root, "f-1");
    let id = kept(slack.stage_file(&file, body()).await.unwrap());
    fake.hide_shares();
    fake.fault("files.completeUploadExternal", [Fault::Lost]);
    let at = crate::now();
    let first = slack.post_file(&file, Staged::Kept(id.clone())).await;
    assert!(matches!(first, Err(CallError::Unknown(_))), "{first:?}");
    file.unknown_since = Some(at);
    let again = slack.post_file(&file, Staged::Kept(id)).await;
    assert!(matches!(again, Err(CallError::Unknown(_))), "{again:?}");
    assert_eq!(fake.calls("files.completeUploadExternal"), 1);
}

#[tokio::test]
async fn fi_02_a_file_that_slack_does_not_take_is_refused_with_its_name() {
    let fake = fake();
    let slack = bot(&fake);
    let mut empty = out("", "f-1");
    empty.size = 0;
    let refused = slack
        .stage_file(&empty, Box::pin(&b""[..]))
        .await
        .err()
        .unwrap();
    assert!(
        matches!(&refused, CallError::Refused(why) if why.contains("report.txt")),
        "{refused}"
    );
    fake.fault("upload", [Fault::Refused(413, "{}".to_owned())]);
    let refused = slack
        .stage_file(&out("", "f-2"), body())
        .await
        .err()
        .unwrap();
    assert!(
        matches!(&refused, CallError::Refused(why) if why.contains("larger")),
        "{refused}"
    );
    fake.without_scope("files:write");
    let refused = slack
        .stage_file(&out("", "f-3"), body())
        .await
        .err()
        .unwrap();
    assert!(refused.to_string().contains("files:write"), "{refused}");
}

/// A person's file, as an event tells of it.
fn remote(fake: &Running, name: &str, kind: &str, content: &[u8]) -> RemoteFile {
    fake.send_file("C1", None, "U1", "look", (name, kind, content));
    let id = fake.newest_file();
    RemoteFile {
        url: Some(fake.file_url(&id)),
        id,
        name: name.to_owned(),
        size: Some(content.len() as u64),
        media_type: Some(kind.to_owned()),
    }
}

async fn read(mut body: Body) -> Vec<u8> {
    let mut content = Vec::new();
    body.read_to_end(&mut content).await.expect("it is read");
    content
}

fn refused(fetched: Result<Body, CallError>) -> String {
    match fetched {
        Err(CallError::Refused(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was fetched"),
    }
}

#[tokio::test]
async fn fi_01_a_login_page_is_not_the_file() {
    let fake = fake();
    let slack = bot(&fake);
    let long = vec![7u8; 300_000];
    let picture = remote(&fake, "a.png", "image/png", &long);
    let page = remote(&fake, "a.html", "text/html", b"<html>mine</html>");
    assert_eq!(read(slack.fetch(&picture).await.unwrap()).await, long);
    assert_eq!(
        read(slack.fetch(&page).await.unwrap()).await,
        b"<html>mine</html>"
    );
    fake.without_scope("files:read");
    for file in [&picture, &page] {
        let why = refused(slack.fetch(file).await);
        assert!(why.contains("files:read"), "{why}");
    }
}

#[tokio::test]
async fn fi_06_a_stub_is_asked_for_and_the_token_goes_nowhere_else() {
    let fake = fake();
    let slack = bot(&fake);
    let mut file = remote(&fake, "a.txt", "text/plain", b"abc");
    file.url = None;
    assert_eq!(read(slack.fetch(&file).await.unwrap()).await, b"abc");
    let stranger = crate::fake();
    for url in [
        stranger.file_url("F1"),
        "https://files.slack.com.evil.test/files-pri/T1-F1/a".to_owned(),
        "https://slack.com/api/api.test".to_owned(),
        "file:///etc/hostname".to_owned(),
        "nonsense".to_owned(),
    ] {
        file.url = Some(url);
        let why = refused(slack.fetch(&file).await);
        assert!(why.contains("a.txt"), "{why}");
    }
    fake.redirect_files(&stranger.file_url("F1"));
    let moved = remote(&fake, "b.txt", "text/plain", b"abc");
    refused(slack.fetch(&moved).await);
    assert_eq!(stranger.calls("file"), 0);
}

#[tokio::test]
async fn a_download_that_breaks_off_is_no_file() {
    let fake = fake();
    let slack = bot(&fake);
    let file = remote(&fake, "a.txt", "text/plain", b"abc");
    for fault in [Fault::Cut, Fault::Refused(503, String::new())] {
        fake.fault("file", [fault]);
        let broken = slack.fetch(&file).await.err();
        assert!(matches!(broken, Some(CallError::NotDone(_))), "{broken:?}");
    }
    fake.fault("file", [Fault::TooMany(7)]);
    let limited = slack.fetch(&file).await.err();
    assert!(
        matches!(&limited, Some(CallError::Limited { after, .. }) if *after == Duration::from_secs(7)),
        "{limited:?}"
    );
    let hasty = mayfly_adapters::slack::Pace {
        upload: Duration::from_secs(1),
        ..pace()
    };
    fake.fault("file", [Fault::Slow(PATIENCE)]);
    let slow = bot_at(&fake, hasty).fetch(&file).await.err();
    assert!(matches!(slow, Some(CallError::NotDone(_))), "{slow:?}");
}
