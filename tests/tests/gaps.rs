//! A finished tick's reply is not lost because its evidence, or a file it sends, cannot be written.

use std::{fs, path::PathBuf};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::{agent::transcript::Event, sandbox::fake::Fake};
use mayfly_tests::{
    engine::run,
    world::{Setup, World},
};

/// A file system of 64 KiB over a folder of a data dir; unmounted when dropped.
struct Tiny(PathBuf);

impl Tiny {
    fn over(path: PathBuf) -> Tiny {
        fs::create_dir_all(&path).expect("a folder");
        let shown = path.to_str().expect("UTF-8");
        run("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", shown]);
        Tiny(path)
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let path = self.0.to_str().expect("UTF-8");
        run("umount", &["--lazy", path]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_that_does_not_fit_costs_no_reply() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    let text = "x".repeat(10_000);
    world.say(agent, &format!("echo {text} > f")).await;
    let tiny = Tiny::over(world.data_dir().join("transcripts"));
    let many = "cat f f f f f f f f f f f f > g; cat g; echo the end";
    let said = world.say(agent, many).await;
    assert_eq!(said.outcome, Some(MessageOutcome::Answered), "{said:?}");
    let reply = said.reply.expect("a reply").text;
    assert!(reply.contains("the end"), "{}", reply.len());
    let note = "note: the transcript of this tick has a gap: No space left on device";
    assert!(reply.contains(note), "{}", &reply[reply.len() - 300..]);
    let tick = said.tick.expect("it ran");
    let shown = world.commands().tick(tick).await.expect("a tick");
    assert!(shown.tick.notes.iter().any(|note| note.contains("a gap")));
    let first = &shown.transcript.first().expect("it begins").event;
    assert!(matches!(first, Event::Prompt { .. }), "{first:?}");
    // Nothing was tried again, and the changes are kept.
    assert_eq!(world.sql("SELECT count(*) FROM ticks"), "2");
    drop(tiny);
    assert_eq!(world.reply(agent, "cat g").await.len(), 12 * 10_001 - 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_stored_costs_no_reply_and_is_kept() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    let tiny = Tiny::over(world.data_dir().join("blobs"));
    let text = "x".repeat(40_000);
    let send =
        format!("mkdir send; echo small > send/a; echo {text} > f; cat f f f > send/b; echo ok");
    let said = world.say(agent, &send).await;
    assert_eq!(said.outcome, Some(MessageOutcome::Answered), "{said:?}");
    let reply = said.reply.expect("a reply");
    assert!(reply.text.starts_with("ok"), "{}", reply.text);
    assert!(reply.text.contains("note: b not sent: "), "{}", reply.text);
    let sent: Vec<_> = reply.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(sent, ["a"]);
    assert_eq!(world.sql("SELECT count(*) FROM ticks"), "1");
    drop(tiny);
    assert_eq!(world.reply(agent, "cat send/b").await.len(), 3 * 40_001 - 1);
    world.end().await;
}

/// Who puts a folder into `send/` is told that nothing of it goes.
#[tokio::test(flavor = "multi_thread")]
async fn folders_that_are_not_sent_are_named_in_reply_and_tick() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    let send =
        "mkdir send; mkdir send/a; mkdir send/b; echo x > send/b/f; echo y > send/c; echo ok";
    let said = world.say(agent, send).await;
    let reply = said.reply.expect("a reply");
    let why = "only files that lie in send/ itself go with a reply, no folders and no links";
    let note = format!("a and 1 more not sent: {why}");
    assert_eq!(reply.text, format!("ok\n\nnote: {note}"));
    let sent: Vec<_> = reply.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(sent, ["c"]);
    let tick = world.commands().tick(said.tick.expect("it ran")).await;
    assert_eq!(tick.expect("a tick").tick.notes, [note]);
    // What went away is nobody's loss, and what an earlier tick made was told then.
    let gone = world
        .say(agent, "rm -r send/a; echo z > send/d; echo ok")
        .await;
    assert_eq!(gone.reply.expect("a reply").text, "ok");
    world.end().await;
}
