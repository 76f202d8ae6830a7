//! The cases every backend passes.

use std::{fs, time::Duration};

use mayfly_domain::SandboxRef;
use mayfly_init::protocol::{Exit, Signal};
use mayfly_orchestrator::sandbox::{BackendError, Owner};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::stage::{Stage, chain, feed, program, sh, until_exit};

fn ended(code: i32) -> Exit {
    Exit {
        code: Some(code),
        signal: None,
        oom: false,
    }
}

pub(crate) async fn a_program_speaks_on_both_streams_and_its_code_is_told(stage: Stage) {
    let attempt = stage.attempt();
    let ran = stage
        .tick(&attempt, "echo out; echo boom >&2; exit 3")
        .await;
    assert_eq!((ran.out(), &*ran.stderr), ("out\n", b"boom\n".as_slice()));
    assert_eq!(ran.exit, ended(3));
    stage.nothing_left().await;
}

pub(crate) async fn at_01_no_short_output_is_lost(stage: Stage) {
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    for round in 0..60 {
        let ran = sh(&mut live, "printf done").await;
        assert_eq!((ran.out(), ran.exit), ("done", ended(0)), "round {round}");
    }
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn at_02_a_child_left_behind_does_not_hold_the_stream(stage: Stage) {
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let short = Duration::from_secs(10);
    let ran = tokio::time::timeout(short, sh(&mut live, "sleep 600 & echo hi")).await;
    let ran = ran.expect("the program ended and the stream did not");
    assert_eq!((ran.out(), ran.exit), ("hi\n", ended(0)));
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn at_03_a_line_of_3_mb_goes_in_and_comes_out(stage: Stage) {
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let mut line = vec![b'x'; 3_000_000];
    line.push(b'\n');
    let id = live.control.start(program(&["cat"])).await.unwrap();
    let control = live.control.clone();
    let (ran, ()) = tokio::join!(
        until_exit(&mut live.notices, id),
        feed(&control, id, line.clone())
    );
    assert_eq!(ran.exit, ended(0));
    assert!(ran.stdout == line, "{} bytes came out", ran.stdout.len());
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn a_script_may_come_on_standard_input(stage: Stage) {
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let id = live.control.start(program(&["sh"])).await.unwrap();
    feed(&live.control, id, b"echo from stdin\nexit 4\n".to_vec()).await;
    let ran = until_exit(&mut live.notices, id).await;
    assert_eq!((ran.out(), ran.exit), ("from stdin\n", ended(4)));
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn a_missing_program_is_refused_by_name(stage: Stage) {
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let refused = live.control.start(program(&["no-such-program"])).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("no-such-program"), "{text}");
    assert_eq!(sh(&mut live, "echo on").await.out(), "on\n");
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn signals_end_a_program_and_are_told(stage: Stage) {
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    for (signal, number) in [(Signal::Terminate, 15), (Signal::Kill, 9)] {
        let id = live
            .control
            .start(program(&["sleep", "600"]))
            .await
            .unwrap();
        live.control.signal(id, signal).await.unwrap();
        let exit = until_exit(&mut live.notices, id).await.exit;
        assert_eq!((exit.code, exit.signal), (None, Some(number)));
    }
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn a_paused_program_goes_on_after_resume(stage: Stage) {
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let id = live
        .control
        .start(program(&["sh", "-c", "sleep 1; echo late"]))
        .await
        .unwrap();
    live.control.pause().await.unwrap();
    let early = Duration::from_millis(1500);
    let quiet = tokio::time::timeout(early, live.notices.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    live.control.resume().await.unwrap();
    assert_eq!(until_exit(&mut live.notices, id).await.out(), "late\n");
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn files_go_in_and_out_by_frames(stage: Stage) {
    let attempt = stage.attempt();
    // A whiteout in the upper hides what the lower has, before anything runs.
    fs::create_dir(attempt.lower.join("received")).unwrap();
    fs::write(attempt.lower.join("received/old"), "old").unwrap();
    let hidden = attempt.upper.join("received");
    mknodat(CWD, &hidden, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    let mut live = stage.spawn(&attempt).await;
    assert!(live.control.get("/work/received/old", 3).await.is_err());
    let content = vec![b'y'; 200_000];
    live.control
        .put("/work/received/a", 0o644, &content)
        .await
        .unwrap();
    assert_eq!(sh(&mut live, "cat received/a").await.stdout, content);
    sh(&mut live, "echo back > answer").await;
    assert_eq!(
        live.control.get("/work/answer", 100).await.unwrap(),
        b"back\n"
    );
    assert!(live.control.get("/work/answer", 3).await.is_err());
    assert!(live.control.get("/work/nothing", 3).await.is_err());
    assert!(live.control.get("/work/received/old", 3).await.is_err());
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn what_changed_is_in_the_upper_and_the_next_sandbox_sees_it(stage: Stage) {
    let first = stage.attempt();
    fs::write(first.lower.join("old"), "old\n").unwrap();
    let script =
        "echo one > a; mkdir d; echo two > d/b; echo more >> a; mv d/b d/c; cat old; rm old";
    let ran = stage.tick(&first, script).await;
    assert_eq!((ran.out(), ran.exit), ("old\n", ended(0)), "{ran:?}");
    assert_eq!(
        fs::read_to_string(first.upper.join("a")).unwrap(),
        "one\nmore\n"
    );
    assert_eq!(
        fs::read_to_string(first.lower.join("old")).unwrap(),
        "old\n"
    );

    let second = stage.after(&first);
    let ran = stage
        .tick(
            &second,
            "cat a d/c; rm -r d; mkdir d; echo new > d/e; cat old",
        )
        .await;
    assert_eq!(
        (ran.out(), ran.exit.code),
        ("one\nmore\ntwo\n", Some(1)),
        "{ran:?}"
    );

    let third = stage.after(&second);
    let ran = stage.tick(&third, "cat d/e; cat d/c").await;
    assert_eq!((ran.out(), ran.exit.code), ("new\n", Some(1)), "{ran:?}");
    stage.nothing_left().await;
}

pub(crate) async fn the_root_is_read_only(stage: Stage) {
    let attempt = stage.attempt();
    let ran = stage
        .tick(&attempt, "echo x > /etc/x; echo y > /tmp/y; cat /tmp/y")
        .await;
    assert_eq!(ran.out(), "y\n", "{ran:?}");
    assert!(!ran.stderr.is_empty());
    stage.nothing_left().await;
}

pub(crate) async fn output_over_the_cap_is_cut_and_the_count_told(stage: Stage) {
    use mayfly_init::protocol::Stream;
    use mayfly_orchestrator::sandbox::control::Event;

    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let mut start = program(&["cat"]);
    (start.head, start.tail) = (4, 3);
    let id = live.control.start(start).await.unwrap();
    feed(&live.control, id, b"abcdefghijklmnop".to_vec()).await;
    let (mut bytes, mut dropped) = (Vec::new(), Vec::new());
    while let Some((_, event)) = live.notices.next().await {
        match event {
            Event::Output(Stream::Stdout, part) => bytes.extend(part),
            Event::Output(_, count) => dropped.push(count),
            Event::Exit(_) => break,
        }
    }
    assert_eq!(bytes, b"abcdnop");
    assert_eq!(dropped, [9_u64.to_be_bytes()]);
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn a_sandbox_whose_worker_lets_go_is_over(stage: Stage) {
    let attempt = stage.attempt();
    let live = stage.spawn(&attempt).await;
    let id = live
        .control
        .start(program(&["sleep", "600"]))
        .await
        .unwrap();
    assert_ne!(id, 0);
    let (control, mut notices) = (live.control, live.notices);
    control.end().await.unwrap();
    while notices.next().await.is_some() {}
    assert!(control.start(program(&["true"])).await.is_err());
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn removal_is_repeatable_and_nothing_is_no_error(stage: Stage) {
    let never = stage.attempt();
    stage.remove(&never).await;
    let attempt = stage.attempt();
    let live = stage.spawn(&attempt).await;
    stage.remove(&attempt).await;
    stage.remove(&attempt).await;
    let mut notices = live.notices;
    while notices.next().await.is_some() {}
    stage.nothing_left().await;
}

pub(crate) async fn cl_02_a_running_sandbox_is_found_and_removed(stage: Stage) {
    let attempt = stage.attempt();
    let live = stage.spawn(&attempt).await;
    live.control
        .start(program(&["sleep", "600"]))
        .await
        .unwrap();
    let found = stage.backend.found(&stage.owner()).await.unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    let another = Owner {
        installation: mayfly_domain::InstallationId::new(),
        ..stage.owner()
    };
    // Another installation's, and another worker's of this one.
    for other in [another, stage.owned_by("other")] {
        assert_eq!(stage.backend.found(&other).await.unwrap(), []);
    }
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

pub(crate) async fn a_base_belongs_to_the_agent(stage: Stage) {
    use std::os::unix::fs::MetadataExt;

    let slots = [
        ("work".to_owned(), "/work".to_owned()),
        ("home".to_owned(), "/home/agent".to_owned()),
    ];
    let into = stage.dir.path().join("base");
    fs::create_dir(&into).unwrap();
    let facts = stage
        .backend
        .extract_base(&stage.owner(), &stage.image, &slots, &into)
        .await;
    let facts = facts.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert_eq!((facts.uid, facts.gid), (1000, 1000));
    for slot in ["work", "home"] {
        assert_eq!(fs::metadata(into.join(slot)).unwrap().uid(), 1000);
    }
    let passwd = fs::read_to_string(into.join("passwd")).unwrap();
    assert!(passwd.contains(":1000:1000:"), "{passwd}");
    assert!(
        fs::read_to_string(into.join("group"))
            .unwrap()
            .contains(":1000:")
    );
    stage.untag().await;
    stage.nothing_left().await;
}

pub(crate) async fn an_image_that_is_missing_or_another_is_named(stage: Stage) {
    let missing: SandboxRef = "docker:mayfly/missing".parse().unwrap();
    match stage.backend.resolve(&missing).await {
        Err(BackendError::NoImage(name)) => assert_eq!(name, "mayfly/missing"),
        other => panic!("{other:?}"),
    }
    let id = "0".repeat(64);
    let other: SandboxRef = format!("docker:mayfly/tiny@sha256:{id}").parse().unwrap();
    match stage.backend.resolve(&other).await {
        Err(BackendError::OtherImage { found, .. }) => assert_eq!(found, stage.image.id),
        other => panic!("{other:?}"),
    }
    let same: SandboxRef = format!("docker:mayfly/tiny@{}", stage.image.id)
        .parse()
        .unwrap();
    assert_eq!(
        stage.backend.resolve(&same).await.unwrap().id,
        stage.image.id
    );
    stage.nothing_left().await;
}
