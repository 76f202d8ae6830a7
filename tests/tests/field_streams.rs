//! What agent programs write, how they end, and what the thread is told of it.

use std::time::{Duration, Instant};

use mayfly_domain::{Limits, MessageOutcome};
use mayfly_orchestrator::{
    agent::{
        profile::{Profile, SHELL},
        transcript::Event,
    },
    command::NewAgent,
    tick::outcome::{Changes, TickOutcome},
    view::{MessageView, TickView},
};
use mayfly_tests::{
    engine,
    front::{Act, Front},
    world::{Setup, World},
};

/// Long versions of the repeated ones.
#[allow(clippy::disallowed_methods)]
fn full() -> bool {
    std::env::var("MAYFLY_TESTS_FULL").is_ok_and(|full| full == "1")
}

fn limits(change: impl FnOnce(&mut Limits)) -> Setup {
    let mut setup = Setup::default();
    change(&mut setup.limits);
    setup
}

fn text(message: &MessageView) -> &str {
    message.reply.as_ref().map_or("", |reply| &reply.text)
}

async fn tick(world: &World, message: &MessageView) -> TickView {
    let tick = message.tick.expect("it ran");
    world.commands().tick(tick).await.expect("it exists").tick
}

/// A program that ends before it could be listened to: its output is there each time, also when
/// the client is slow after the start. It does not read its prompt, so nothing waits for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn at_01_the_output_of_a_program_that_ends_at_once() {
    let slow = Front::new(|request| {
        if request.path.ends_with("/json") && request.path.starts_with("/containers/mayfly-") {
            std::thread::sleep(Duration::from_secs(1));
        }
        Act::Pass
    });
    let setup = |docker_host| Setup {
        profiles: vec![(
            "instant".to_owned(),
            Profile {
                command: ["printf", "done"].map(str::to_owned).to_vec(),
                ..Profile::default()
            },
        )],
        docker_host,
        ..Setup::default()
    };
    let many = if full() { 500 } else { 30 };
    for (docker_host, runs) in [(Some(slow.host()), 3), (None, many)] {
        let world = World::docker_with(setup(docker_host)).await;
        let agent = world.agent("instant").await.unwrap();
        let mut posted = Vec::new();
        for _ in 0..runs {
            posted.push(world.post(agent, "not read").await);
        }
        for message in posted {
            let message = world.outcome(&message).await;
            assert_eq!(text(&message), "done");
            assert_eq!(message.outcome, Some(MessageOutcome::Answered));
            assert_eq!(tick(&world, &message).await.exit_code, Some(0));
        }
        world.end().await;
    }
}

/// A child that keeps the output open holds up neither the answer nor the lane.
#[tokio::test(flavor = "multi_thread")]
async fn at_02_a_child_that_keeps_the_output_open_does_not_hold_the_answer() {
    let world = World::docker().await;
    let agent = world.shell().await;
    world.reply(agent, "true").await;
    let began = Instant::now();
    assert_eq!(
        world.reply(agent, "sh -c 'sleep 600 & echo hi'").await,
        "hi"
    );
    // In a session of its own it is out of reach of the program's group.
    let hidden = "setsid -f sh -c 'trap \"\" INT TERM; sleep 600' ; echo ho";
    assert_eq!(world.reply(agent, hidden).await, "ho");
    assert!(began.elapsed() < Duration::from_secs(15), "{began:?}");
    world.end().await;
}

/// One line of 3 MB, then the result: the result arrives, the middle of the line is left out by
/// the profile's rule, and its size is told.
#[tokio::test(flavor = "multi_thread")]
async fn at_03_one_line_of_three_megabytes_then_the_result() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let long = r#"python3 -c 'print("S" + "x" * 3000000 + "E"); print("the result")'"#;
    let message = world.say(agent, long).await;
    assert_eq!(message.outcome, Some(MessageOutcome::Answered));
    let reply = text(&message);
    assert!(reply.starts_with("Sxxx"));
    assert!(
        reply.ends_with("xxxE\nthe result"),
        "{}",
        &reply[reply.len() - 50..]
    );
    let left_out = 3_000_000 + 2 + 1 + "the result\n".len() - (1 << 20);
    let told = format!("[… {left_out} bytes left out …]");
    assert!(reply.contains(&told), "not {told}");
    assert_eq!(
        tick(&world, &message).await.usage.output_bytes,
        3_000_003 + 11
    );
    world.end().await;

    // A profile that keeps more delivers it whole.
    let world = World::docker_with(limits(|limits| limits.output_bytes = 8 << 20)).await;
    let agent = world.shell().await;
    let reply = world.reply(agent, long).await;
    assert_eq!(reply.len(), 3_000_003 + "the result".len());
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_05_lines_after_the_result_and_no_result_at_all() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let message = world
        .say(agent, "echo the result; echo npm notice update available")
        .await;
    assert_eq!(message.outcome, Some(MessageOutcome::Answered));
    assert_eq!(text(&message), "the result\nnpm notice update available");
    let indented = "python3 -c 'import json; print(json.dumps(list(range(40)), indent=2))'";
    assert_eq!(world.reply(agent, indented).await.lines().count(), 42);
    for silent in ["printf '  \\n \\t\\n'; touch made", "true"] {
        let message = world.say(agent, silent).await;
        assert_eq!(message.outcome, Some(MessageOutcome::Noticed));
        assert_eq!(text(&message), "no answer, changes kept");
        assert_eq!(
            tick(&world, &message).await.outcome,
            Some(TickOutcome::Done)
        );
    }
    assert_eq!(world.reply(agent, "ls").await, "made");
    world.end().await;
}

/// The engine's connections are cut after 3 s of silence, as by a client with a read time-out; the
/// program is silent for much longer. Only its own deadline may end it.
async fn silent_for(seconds: u64) {
    let front = Front::cutting(Some(Duration::from_secs(3)), |_| Act::Pass);
    let world = World::docker_with(Setup {
        docker_host: Some(front.host()),
        ..limits(|limits| limits.wall_clock_s = seconds + 60)
    })
    .await;
    let agent = world.shell().await;
    let posted = world
        .post(agent, &format!("sleep {seconds}; echo answered"))
        .await;
    world
        .until_sql("SELECT progress FROM ticks", "running")
        .await;
    let seen = world.commands().message(posted.id).await.unwrap();
    assert_eq!(seen.progress.as_deref(), Some("running"), "a sign of life");
    let patience = Duration::from_secs(seconds + 60);
    let message = world.commands().wait(posted.id, patience).await.unwrap();
    assert_eq!(text(&message), "answered");
    assert_eq!(message.attempts, 0);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_06_a_silent_program_is_not_cut() {
    silent_for(20).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "ten minutes of silence, past the engine client's own time-out of two"]
async fn at_06_a_program_silent_for_ten_minutes_is_not_cut() {
    silent_for(600).await;
}

/// A large image is on its way for longer than any single answer may take.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a pull of 75 seconds"]
async fn at_06_a_long_pull_is_not_cut() {
    let name = "mayfly-test/far-away";
    let front = Front::new(move |request| {
        let done = request.path == "/images/create";
        if done {
            // What the engine has when it is through.
            engine::run("docker", &["tag", "mayfly/tiny", name]);
            return Act::Progress(15, Duration::from_secs(5));
        }
        Act::Pass
    });
    let world = World::docker_with(Setup {
        docker_host: Some(front.host()),
        ..Setup::default()
    })
    .await;
    let new = NewAgent {
        profile: None,
        sandbox: Some(format!("docker:{name}").parse().unwrap()),
    };
    let made = world.commands().create_agent(new).await;
    engine::run("docker", &["rmi", name]);
    let agent = made.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(world.reply(agent.id, "echo arrived").await, "arrived");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_07_standard_input_ends_and_a_program_that_never_writes_is_ended() {
    let command = |argv: &[&str], first_output_s| Profile {
        command: argv.iter().map(|word| (*word).to_owned()).collect(),
        limits: Limits {
            wall_clock_s: 60,
            first_output_s,
            ..Limits::default()
        },
        ..Profile::default()
    };
    let world = World::docker_with(Setup {
        profiles: vec![
            // As a program that waits for the end of its input although it has all it needs.
            ("reads".to_owned(), command(&["cat"], 0)),
            (
                "silent".to_owned(),
                command(&["sh", "-c", "cat >input; exec sleep 600"], 2),
            ),
        ],
        ..Setup::default()
    })
    .await;
    let reads = world.agent("reads").await.unwrap();
    assert_eq!(world.reply(reads, "to the end").await, "to the end");

    let silent = world.agent("silent").await.unwrap();
    let began = Instant::now();
    let message = world.say(silent, "hello").await;
    assert_eq!(
        text(&message),
        "the program wrote nothing for 2 s, changes kept"
    );
    assert_eq!(
        tick(&world, &message).await.outcome,
        Some(TickOutcome::TimedOut)
    );
    // The lane is free again.
    let message = world.say(silent, "again").await;
    assert_eq!(message.outcome, Some(MessageOutcome::Noticed));
    assert!(began.elapsed() < Duration::from_secs(30), "{began:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_08_sp_01_out_of_memory_and_an_exit_code_are_told_as_such() {
    let world = World::docker_with(limits(|limits| limits.memory_mib = 256)).await;
    let agent = world.shell().await;
    assert_eq!(world.reply(agent, "echo here >f; cat f").await, "here");

    let greedy = r#"python3 -c 'print("begun", flush=True); x = bytearray(400 << 20)'"#;
    let message = world
        .say(agent, &format!("echo lost >f; exec {greedy}"))
        .await;
    assert_eq!(message.outcome, Some(MessageOutcome::Noticed));
    assert_eq!(
        text(&message),
        "begun\n\nout of memory (256 MiB), changes discarded"
    );
    let row = tick(&world, &message).await;
    assert_eq!(row.outcome, Some(TickOutcome::Failed));
    assert_eq!(row.changes, Some(Changes::Discarded));
    assert_eq!(world.reply(agent, "cat f").await, "here");

    // Only a child of the program died: the program's own end counts, the rest is one line.
    let message = world
        .say(agent, &format!("{greedy} || echo survived"))
        .await;
    assert_eq!(message.outcome, Some(MessageOutcome::Answered));
    assert_eq!(text(&message), "begun\nsurvived");
    let detail = world.commands().tick(message.tick.unwrap()).await.unwrap();
    let said = |event: &Event| matches!(event, Event::Note { text } if text.contains("memory"));
    assert!(
        detail.transcript.iter().any(|line| said(&line.event)),
        "{:?}",
        detail.transcript
    );

    let message = world
        .say(agent, "echo kept >f; echo boom >&2; exit 3")
        .await;
    assert_eq!(message.outcome, Some(MessageOutcome::Noticed));
    assert_eq!(text(&message), "exit 3, changes kept\n```\nboom\n```");
    assert_eq!(tick(&world, &message).await.exit_code, Some(3));
    assert_eq!(world.reply(agent, "cat f").await, "kept");
    world.end().await;
}

/// 200 MB of output: memory and transcript stay bounded, the first and the last part are kept, and
/// the size is told.
#[tokio::test(flavor = "multi_thread")]
async fn cl_08_an_agent_that_prints_200_megabytes() {
    let world = World::docker_with(limits(|limits| limits.transcript_bytes = 4 << 20)).await;
    let agent = world.shell().await;
    world.reply(agent, "true").await;
    let before = resident();
    let printed = 200 << 20;
    let message = world
        .say(
            agent,
            &format!("echo begin; head -c {printed} /dev/zero | tr '\\0' 'x'; echo; echo end"),
        )
        .await;
    let grown = peak().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB more", grown >> 20);
    assert_eq!(message.outcome, Some(MessageOutcome::Answered));
    let reply = text(&message);
    assert!(reply.starts_with("begin\nxxx") && reply.ends_with("xxx\nend"));
    let total = printed + "begin\n\nend\n".len();
    let told = format!("[… {} bytes left out …]", total - (1 << 20));
    assert!(reply.contains(&told), "not {told}");
    let row = tick(&world, &message).await;
    assert_eq!(row.usage.output_bytes as usize, total);
    let transcripts = world.data_dir().join("transcripts").join(agent.to_string());
    let kept = std::fs::metadata(transcripts.join(format!("{}.jsonl", row.id))).unwrap();
    assert!(kept.len() <= 4 << 20, "{}", kept.len());
    world.end().await;
}

/// Bytes of this process in memory, now and at most so far.
fn resident() -> usize {
    status("VmRSS:")
}

fn peak() -> usize {
    status("VmHWM:")
}

fn status(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    let kib = line.split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_limit_is_told_and_what_was_done_is_kept() {
    let world = World::docker_with(limits(|limits| limits.wall_clock_s = 2)).await;
    let agent = world.shell().await;
    let message = world.say(agent, "echo half; echo done >f; sleep 600").await;
    assert_eq!(message.outcome, Some(MessageOutcome::Noticed));
    assert_eq!(
        text(&message),
        "half\n\ntime limit of 2 s reached, changes kept"
    );
    assert_eq!(world.reply(agent, "cat f").await, "done");

    // One that does not listen is killed, and what it did is not kept.
    let began = Instant::now();
    let deaf = "echo lost >f; trap '' INT TERM; while :; do sleep 1; done";
    let message = world.say(agent, deaf).await;
    assert_eq!(
        text(&message),
        "time limit of 2 s reached, changes discarded"
    );
    assert!(began.elapsed() < Duration::from_secs(20), "{began:?}");
    assert_eq!(world.reply(agent, "cat f").await, "done");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fi_04_files_under_send_travel_in_the_reply_and_links_never() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let send = "mkdir -p send/folder && echo one >send/a.txt && ln -s /etc/passwd send/x && \
                ln send/a.txt send/same.txt && echo deep >send/folder/deep && mkfifo send/pipe && \
                printf two >'send/b c.txt' && echo sent";
    let message = world.say(agent, send).await;
    let reply = message.reply.expect("a reply");
    assert_eq!(
        reply.text,
        "sent\n\nnote: dropped fifo /work/send/pipe\nnote: folder and 1 more not sent: only files that \
         lie in send/ itself go with a reply, no folders and no links"
    );
    let mut names: Vec<&str> = reply.files.iter().map(|file| file.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a.txt", "b c.txt", "same.txt"]);
    let file = reply
        .files
        .iter()
        .find(|file| file.name == "a.txt")
        .unwrap();
    assert_eq!(file.size, 4);
    let blobs = &world.service().worker().tools.blobs;
    assert_eq!(blobs.get(&file.blob).await.unwrap(), b"one\n");

    // What an earlier tick sent does not go again; a folder put in its place by a link does not
    // move what is read.
    let message = world.say(agent, "echo three >send/c.txt; echo more").await;
    let files = message.reply.unwrap().files;
    assert_eq!(files.len(), 1, "{files:?}");
    let message = world
        .say(agent, "rm -r send; ln -s /etc send; echo none")
        .await;
    let reply = message.reply.unwrap();
    assert_eq!((reply.text.as_str(), reply.files.len()), ("none", 0));

    // Discarded changes send no files.
    let lost = "rm send; mkdir send; echo lost >send/lost; kill -9 $$";
    let message = world.say(agent, lost).await;
    let reply = message.reply.unwrap();
    assert_eq!(reply.text, "killed by signal 9, changes discarded");
    assert_eq!(reply.files, []);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_cannot_start_is_told_at_once() {
    let world = World::docker_with(Setup {
        profiles: vec![(
            "nothing".to_owned(),
            Profile {
                command: vec!["no-such-program".to_owned()],
                ..Profile::default()
            },
        )],
        ..Setup::default()
    })
    .await;
    let agent = world.agent("nothing").await.unwrap();
    let message = world.say(agent, "hello").await;
    assert_eq!(message.outcome, Some(MessageOutcome::Noticed));
    assert!(
        text(&message).starts_with("the program did not start: ")
            && text(&message).contains("no-such-program")
            && text(&message).ends_with(", changes discarded"),
        "{}",
        text(&message)
    );
    assert!(world.agent(SHELL).await.is_ok());
    world.end().await;
}
