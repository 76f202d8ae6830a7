//! What an agent leaves for the host to trip over: links out of its folders, names, depths.

use mayfly_domain::{AgentId, Limits, ReplyFile};
use mayfly_tests::{engine, world::World};

use crate::table::{message, world};

const SEND: &str = include_str!("../../hostile/send.py");
const DEEP: &str = include_str!("../../hostile/deep.py");

async fn files(world: &World, agent: AgentId, text: &str) -> (String, Vec<ReplyFile>) {
    let reply = world.say(agent, text).await.reply.expect("it is answered");
    (reply.text, reply.files)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_regular_files_of_its_own_goes_with_a_reply() {
    let world = world(Limits::default()).await;
    let agent = world.shell().await;
    let (text, sent) = files(&world, agent, &message(SEND)).await;
    assert!(text.starts_with("done\n\nnote: "), "{text}");
    let controls = |letter: char| letter.is_control() && letter != '\n';
    assert!(!text.contains(controls), "{text:?}");
    assert!(sent.len() >= 5, "{sent:?}");
    let expected = [
        ("plain", 5),
        ("twin", 5),
        ("newline", 7),
        ("_rf", 4),
        (".hidden", 6),
        ("holes", 20 << 20),
        ("etc", 11),
        ("[31mred]0;title", 6),
    ];
    for file in &sent {
        let known = expected
            .iter()
            .any(|(name, size)| *name == file.name && *size == file.size);
        assert!(known || file.name == "n".repeat(200), "{file:?} was sent");
    }
    let kept = "find send -printf '%y %P\\n' | LC_ALL=C sort | head -3; cat -- .wh.plain '#1'; readlink received; \
                cat send/twin 2>&1; ls send/deep";
    let text = world.reply(agent, kept).await;
    assert!(
        text.contains("keptkept/etc\n") && text.contains("below"),
        "{text}"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_files_to_send_are_one_line() {
    let world = world(Limits::default()).await;
    let agent = world.shell().await;
    let many = "mkdir send; cd send; touch $(seq -f $'\\e]0;%04.0f\\a' 3000); echo done";
    let (text, sent) = files(&world, agent, many).await;
    let note = "done\n\nnote: \u{fffd}]0;0011\u{fffd} and 2989 more not sent: at most 10 files";
    assert!(
        text.starts_with(note) && text.lines().count() == 3,
        "{text:.300}"
    );
    assert_eq!(sent.len(), 10);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_becomes_a_link_leads_nowhere() {
    let world = world(Limits::default()).await;
    let agent = world.shell().await;
    let (_, sent) = files(&world, agent, "mkdir send; echo 1 > send/passwd; echo ok").await;
    assert_eq!(
        sent.iter()
            .map(|file| file.name.as_str())
            .collect::<Vec<_>>(),
        ["passwd"]
    );
    for target in [
        "/etc",
        "/",
        "/proc/self/root/etc",
        "../../../../../../etc",
        "/work",
        ".",
    ] {
        let swap = format!("rm -rf send; ln -s {target} send; echo swapped");
        assert_eq!(
            files(&world, agent, &swap).await,
            ("swapped".to_owned(), Vec::new()),
            "{target}"
        );
    }
    // The name of a file of an earlier layer, now below a link.
    let through = "rm send; mkdir real; echo 2 > real/passwd; ln -s real send; cat send/passwd";
    assert_eq!(
        files(&world, agent, through).await,
        ("2".to_owned(), Vec::new())
    );
    let closed = "rm send; mkdir send; echo 3 > send/f; chmod 0 send; chmod 0 /work; echo closed";
    let (text, sent) = files(&world, agent, closed).await;
    assert_eq!((text.as_str(), sent.len()), ("closed", 1));
    // As it was left, and not beyond repair.
    let (text, _) = files(
        &world,
        agent,
        "chmod 755 /work && chmod 755 send && cat send/f",
    )
    .await;
    assert!(
        text.contains('3') || text.contains("did not start"),
        "{text}"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_deeper_than_any_path_costs_seconds_and_not_the_agent() {
    let world = world(Limits {
        wall_clock_s: 20,
        ..Limits::default()
    })
    .await;
    // Where many levels branch nobody can look.
    for (branches, then, answer) in [
        ("", "1", "deep"),
        (
            "yes",
            "30",
            "deep\n\ndisk limit of 128 nested folders reached, changes discarded",
        ),
    ] {
        let agent = world.shell().await;
        world.say(agent, "echo before > f").await;
        let settings = format!("export BRANCHES={branches} THEN={then}; trap '' INT TERM");
        let said = world
            .say(agent, &format!("{settings}; {}", message(DEEP)))
            .await;
        assert_eq!(said.reply.map(|reply| reply.text).as_deref(), Some(answer));
        let tick = said.tick.expect("it ran");
        let [_, _, run, report, _] = world
            .commands()
            .tick(tick)
            .await
            .unwrap()
            .tick
            .usage
            .phase_ms;
        assert!(
            run < 20_000 && report < 30_000,
            "{run} ms run, {report} ms report"
        );
        // Removing it through the overlay is the agent's own time.
        assert_eq!(world.reply(agent, "ls | tail -1; cat f").await, "f\nbefore");
    }
    // What clears a test's folder away opens a handle for each level.
    let layers = world.data_dir().join("l");
    engine::run(
        "rm",
        &["-rf", layers.to_str().expect("test paths are UTF-8")],
    );
    world.end().await;
}
