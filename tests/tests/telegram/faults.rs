//! Every call with every fault: what is told, and that nothing is done twice.

use std::time::Duration;

use mayfly_adapters::telegram::{Telegram, config::Config};
use mayfly_domain::{
    Author, Pressed, RemoteFile, ThreadKey,
    chat::{CallError, FileOut, Platform as _, Sign},
};
use mayfly_tests::{
    fake::Fault,
    fake_telegram::{FakeTelegram, Person, TOKEN},
};

use crate::{Fake, body, bot, chat, config, in_time, new_post, post_id, say, texts, until};

const ANN: Person = Person(7);

/// The calls of the seam, with the Bot API's method that each stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Post,
    Edit,
    Remove,
    File,
    Busy,
    Sign,
    Answer,
    Open,
    Fetch,
}

const CALLS: [(Call, &str); 10] = [
    (Call::Post, "sendmessage"),
    (Call::Edit, "editmessagetext"),
    (Call::Remove, "deletemessage"),
    (Call::File, "senddocument"),
    (Call::Busy, "sendchataction"),
    (Call::Sign, "setmessagereaction"),
    (Call::Answer, "answercallbackquery"),
    (Call::Open, "sendmessage"),
    (Call::Fetch, "getfile"),
    (Call::Fetch, "file"),
];

/// A chat with a question and its file, and a post of the bot.
struct Scene {
    here: ThreadKey,
    question: i64,
    ours: String,
    press: String,
    file: RemoteFile,
}

async fn scene(fake: &Fake) -> Scene {
    let here = chat(fake.platform.private(ANN));
    let question = fake
        .platform
        .send_file(ANN.0, ANN, "see", "a.bin", b"content");
    let bot = bot(fake);
    let button = mayfly_domain::chat::Button {
        id: "x".to_owned(),
        label: "Stop".to_owned(),
        danger: false,
    };
    let line = bot.line("first", &[button]);
    let ours = bot.post(&new_post(&here, line)).await.expect("posted");
    let press = fake
        .platform
        .press(ANN.0, ours.parse().expect("a number"), "Stop", ANN);
    let id = fake.platform.waiting()[0]["message"]["document"]["file_id"].clone();
    let file = RemoteFile {
        id: id.as_str().expect("an id").to_owned(),
        name: "a.bin".to_owned(),
        size: Some(7),
        media_type: None,
        url: None,
    };
    Scene {
        here,
        question,
        ours,
        press,
        file,
    }
}

impl Scene {
    async fn call(&self, bot: &Telegram, call: Call) -> Result<(), CallError> {
        match call {
            Call::Post => say(bot, &self.here, "reply").await.map(drop),
            Call::Edit => {
                let text = bot.line("second", &[]);
                bot.edit(&self.here, &self.ours, &text).await
            }
            Call::Remove => bot.remove(&self.here, &self.ours).await,
            Call::File => {
                let file = self.file_out(None);
                let staged = bot.stage_file(&file, body(b"report")).await?;
                bot.post_file(&file, staged).await.map(drop)
            }
            Call::Busy => bot.busy(&self.here).await.map(drop),
            Call::Sign => bot.sign(&post_id(ANN.0, self.question), Sign::Seen).await,
            Call::Answer => {
                let pressed = Pressed {
                    button: "x".to_owned(),
                    on: post_id(ANN.0, self.ours.parse().expect("a number")),
                    thread: self.here.clone(),
                    by: Author::local("7"),
                    roles: Vec::new(),
                    answer_to: self.press.clone(),
                };
                bot.answer(&pressed, "done").await
            }
            Call::Open => bot.open(&self.here, "beside", "t", None).await.map(drop),
            Call::Fetch => bot.fetch(&self.file).await.map(drop),
        }
    }

    fn file_out(&self, unknown_since: Option<i64>) -> FileOut {
        FileOut {
            thread: self.here.clone(),
            token: "t".to_owned(),
            name: "report.txt".to_owned(),
            size: 6,
            answers: None,
            unknown_since,
        }
    }
}

/// All that a call may change.
fn state(fake: &Fake, scene: &Scene) -> impl PartialEq + std::fmt::Debug {
    (
        fake.platform.shown(ANN.0),
        fake.platform.actions(),
        fake.platform.reaction(ANN.0, scene.question),
        fake.platform.answered(&scene.press),
    )
}

/// Nothing that is told holds the token.
fn told(result: Result<(), CallError>) -> CallError {
    let error = result.expect_err("a fault");
    let secret = TOKEN.split_once(':').expect("two parts").1;
    assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    error
}

#[tokio::test]
async fn fm_08_a_cut_connection_leaves_the_outcome_open_and_nothing_is_done() {
    for (call, method) in CALLS {
        let fake = FakeTelegram::start();
        let scene = scene(&fake).await;
        let before = state(&fake, &scene);
        fake.fault(method, [Fault::Cut]);
        let error = told(scene.call(&bot(&fake), call).await);
        assert!(
            matches!(error, CallError::Unknown(_)),
            "{call:?}: {error:?}"
        );
        assert_eq!(state(&fake, &scene), before, "{call:?}");
    }
}

#[tokio::test]
async fn a_lost_answer_leaves_the_outcome_open_and_it_is_done_once() {
    for (call, method) in CALLS {
        let fake = FakeTelegram::start();
        let scene = scene(&fake).await;
        let before = fake.calls(method).len();
        fake.fault(method, [Fault::Lost]);
        let error = told(scene.call(&bot(&fake), call).await);
        assert!(
            matches!(error, CallError::Unknown(_)),
            "{call:?}: {error:?}"
        );
        assert_eq!(
            fake.calls(method).len(),
            before + 1,
            "{call:?} was not repeated"
        );
    }
}

#[tokio::test]
async fn a_server_in_trouble_leaves_the_outcome_open_at_once() {
    for (call, method) in CALLS {
        let fake = FakeTelegram::start();
        let scene = scene(&fake).await;
        for body in ["<html>502</html>", r#"{"ok":false,"error_code":500}"#, ""] {
            fake.fault(method, [Fault::Refused(502, body.to_owned())]);
            let error = told(scene.call(&bot(&fake), call).await);
            assert!(
                matches!(error, CallError::Unknown(_)),
                "{call:?}: {error:?}"
            );
        }
    }
}

#[tokio::test]
async fn rc_01_every_call_tells_how_long_to_wait_and_holds_its_chat() {
    for (call, method) in CALLS {
        let fake = FakeTelegram::start();
        let scene = scene(&fake).await;
        let before = state(&fake, &scene);
        let bot = bot(&fake);
        fake.fault(method, [Fault::TooMany(40)]);
        let error = told(scene.call(&bot, call).await);
        let after = Duration::from_secs(40);
        assert!(
            matches!(&error, CallError::Limited { after: found, .. } if *found == after),
            "{call:?}: {error:?}"
        );
        let calls = fake.calls(method).len();
        let again = told(scene.call(&bot, call).await);
        assert!(
            matches!(again, CallError::Limited { .. }),
            "{call:?}: {again:?}"
        );
        assert_eq!(fake.calls(method).len(), calls, "{call:?}");
        assert_eq!(state(&fake, &scene), before, "{call:?}");
    }
}

#[tokio::test]
async fn se_05_a_refusal_is_told_in_its_words_but_not_with_the_token() {
    for (call, method) in CALLS {
        let fake = FakeTelegram::start();
        let scene = scene(&fake).await;
        let before = state(&fake, &scene);
        let body = format!(
            r#"{{"ok":false,"error_code":400,"description":"Bad Request: odd /bot{TOKEN}/x"}}"#
        );
        fake.fault(method, [Fault::Refused(400, body)]);
        let error = told(scene.call(&bot(&fake), call).await);
        assert!(
            matches!(&error, CallError::Refused(why) if why.contains("odd")),
            "{call:?}: {error:?}"
        );
        assert_eq!(state(&fake, &scene), before, "{call:?}");
    }
}

/// What is asked before a conversation is opened opens nothing, however that ends.
#[tokio::test]
async fn fm_08_a_question_before_a_conversation_is_opened_leaves_nothing_open() {
    let fake = FakeTelegram::start();
    let scene = scene(&fake).await;
    for method in ["getchat", "getme"] {
        let before = state(&fake, &scene);
        fake.fault(method, [Fault::Lost]);
        let error = told(scene.call(&bot(&fake), Call::Open).await);
        assert!(matches!(error, CallError::NotDone(_)), "{error:?}");
        assert_eq!(state(&fake, &scene), before, "{method}");
    }
}

#[tokio::test]
async fn without_a_connection_a_call_is_certainly_not_done() {
    let fake = FakeTelegram::start();
    let scene = scene(&fake).await;
    // A free port could be another test's a moment later; this one is nobody's.
    let config = Config {
        api: "http://127.0.0.1:1".parse().expect("an address"),
        ..config(&fake)
    };
    let bot = Telegram::new(&config).expect("a bot");
    for (call, _) in CALLS {
        let error = told(scene.call(&bot, call).await);
        assert!(
            matches!(error, CallError::NotDone(_)),
            "{call:?}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_whatever_the_server_does() {
    let mut waiting = Vec::new();
    for (call, method) in CALLS.into_iter().filter(|(call, _)| *call != Call::Fetch) {
        for fault in [
            Fault::Slow(Duration::from_secs(600)),
            Fault::Late(Duration::from_secs(600)),
        ] {
            waiting.push(async move {
                let fake = FakeTelegram::start();
                let scene = scene(&fake).await;
                fake.fault(method, [fault]);
                let hasty = Telegram::new(&Config {
                    timeout_s: 1,
                    ..config(&fake)
                });
                // A file may take its time, so what is left of its patience is not waited for here.
                let call_of = scene.call(hasty.as_ref().expect("a bot"), call);
                if call == Call::File {
                    let open = tokio::time::timeout(Duration::from_secs(2), call_of).await;
                    assert!(open.is_err(), "{open:?}");
                    return;
                }
                let error = told(in_time("a deadline", call_of).await);
                assert!(
                    matches!(error, CallError::Unknown(_)),
                    "{call:?}: {error:?}"
                );
            });
        }
    }
    futures_util::future::join_all(waiting).await;
}

#[tokio::test]
async fn fm_07_an_edit_done_late_is_overwritten_by_the_one_repeated_after_it() {
    let fake = FakeTelegram::start();
    let scene = scene(&fake).await;
    let hasty = Telegram::new(&Config {
        timeout_s: 4,
        ..config(&fake)
    });
    fake.fault("editmessagetext", [Fault::Late(Duration::from_secs(5))]);
    let late = scene.call(&hasty.expect("a bot"), Call::Edit).await;
    assert!(matches!(told(late), CallError::Unknown(_)));
    let bot = bot(&fake);
    let answer = bot.line("the answer", &[]);
    bot.edit(&scene.here, &scene.ours, &answer)
        .await
        .expect("edited");
    until("the late edit", || {
        let ours = fake.platform.shown(ANN.0).pop().expect("our post");
        ours.text == "second" || ours.history.contains(&"second".to_owned())
    })
    .await;
    bot.edit(&scene.here, &scene.ours, &answer)
        .await
        .expect("edited");
    assert_eq!(texts(&fake, ANN.0), ["see", "the answer"]);
}

#[tokio::test]
async fn a_placeholder_of_unknown_outcome_may_be_made_again_and_a_file_never_is() {
    let fake = FakeTelegram::start();
    let scene = scene(&fake).await;
    let bot = bot(&fake);
    fake.fault("sendmessage", [Fault::Lost]);
    let mut post = new_post(&scene.here, bot.line("…", &[]));
    assert!(matches!(bot.post(&post).await, Err(CallError::Unknown(_))));
    post.unknown_since = Some(1);
    bot.post(&post).await.expect("posted again");
    assert_eq!(texts(&fake, ANN.0), ["see", "first", "…", "…"]);

    fake.fault("senddocument", [Fault::Lost]);
    let lost = scene.call(&bot, Call::File).await;
    assert!(matches!(lost, Err(CallError::Unknown(_))), "{lost:?}");
    let calls = fake.calls("senddocument").len();
    let again = scene.file_out(Some(1));
    let staged = bot.stage_file(&again, body(b"report")).await;
    let staged = staged.expect("staged");
    let again = bot.post_file(&again, staged).await;
    assert!(matches!(again, Err(CallError::Unknown(_))), "{again:?}");
    assert_eq!(fake.calls("senddocument").len(), calls, "nobody was asked");
    let files = fake
        .platform
        .shown(ANN.0)
        .into_iter()
        .filter(|post| post.file.is_some());
    assert_eq!(files.count(), 2, "the question's and one of ours");
}
