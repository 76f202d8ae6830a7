//! The way back and the way forward, and what can be seen of states: by people, on the real engine.

use std::{
    collections::BTreeMap,
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use mayfly_domain::{AgentId, MessageOutcome};
use mayfly_orchestrator::{
    command::{RequestError, StopScope},
    retention::Ask,
    snapshot::{Listed, Looked},
    worker::WorkerConfig,
};
use mayfly_tests::{
    http::{get, on_socket},
    server::Server,
    world::{Setup, World},
};
use serde_json::Value;

const EVERYTHING: Listed = Listed {
    recursive: true,
    most: 10_000,
    after: None,
};

/// All of a state but its folders' content: path to mode, size, mtime, link target, digest.
type Picture = BTreeMap<String, String>;

fn started() -> Server {
    let mut server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.start();
    server
}

/// Says something, must be answered, and returns the tick.
fn say(server: &Server, agent: &str, text: &str) -> String {
    let view = server.json(&["agent", "send", agent, text]);
    assert_eq!(view["outcome"], "answered", "{view}");
    view["tick"].as_str().expect("a tick").to_owned()
}

fn told(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn good(server: &Server, arguments: &[&str]) -> String {
    let output = server.mayfly(arguments);
    let (answer, notice) = told(&output);
    assert!(output.status.success(), "{arguments:?}: {answer} {notice}");
    answer
}

fn refused(server: &Server, arguments: &[&str], code: i32) -> String {
    let output = server.mayfly(arguments);
    let (answer, notice) = told(&output);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {answer} {notice}"
    );
    notice
}

fn told_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn digest(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("sha256sum starts");
    let mut input = child.stdin.take().expect("an input");
    input.write_all(bytes).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn rb_01_a_restore_is_exact_all_or_nothing_and_saves_the_present_state_first() {
    let mut server = started();
    let agent = server.agent();
    // Output that nothing tracks: ignored by git, holes, odd names and modes, and in the home.
    let made = "git init -q . && echo '*.out' >.gitignore && echo 1 >tracked && git add . && \
        head -c 5000000 /dev/urandom >big.out && truncate -s 1500M holes.out && \
        mkdir -p deep/er && echo x >\"deep/er/odd $(printf '\\n')name\" && chmod 600 deep/er/odd* && \
        ln -s nowhere dangling && ln tracked linked && touch -d @1.123456789 tracked && \
        echo secret >~/notes && echo ok";
    let first = say(&server, &agent, made);
    let second = say(
        &server,
        &agent,
        "rm -rf deep big.out dangling && echo 2 >tracked && mkdir big.out && echo new >big.out/f && \
         rm ~/notes && chmod 700 . && head -c 2000000 /dev/urandom >unsaved.out && echo ok",
    );
    let before = picture_without_holes(&server, &agent, &first);
    let present = picture_without_holes(&server, &agent, "head");
    assert!(before.contains_key("/work/big.out") && !before.contains_key("/work/unsaved.out"));
    assert_ne!(before, present);
    let stood_on = server.json(&["agent", "show", &agent])["head"].clone();
    assert!(stood_on.is_string());

    // The second half fails: nothing has happened.
    server.stop();
    server.start_with_fault("rollback.inside");
    let unknown = refused(&server, &["agent", "rollback", &agent, &first], 12);
    assert!(unknown.contains("mayfly agent show"), "{unknown}");
    server.wait_dead();
    server.start();
    assert_eq!(picture_without_holes(&server, &agent, "head"), present);
    server.stop();
    // The answer is lost: all has happened.
    server.start_with_fault("rollback.after");
    refused(&server, &["agent", "rollback", &agent, &first], 12);
    server.wait_dead();
    server.start();
    assert_eq!(picture_without_holes(&server, &agent, "head"), before);
    // What it stood on is remembered, once.
    let graph = server.json(&["agent", "log", "--graph", &agent]);
    let moves = graph["moves"].as_array().expect("moves");
    let from: Vec<&Value> = moves.iter().map(|moved| &moved["from"]).collect();
    assert_eq!(from, [&stood_on]);
    // What a tick sees is the same, and the state that was left is whole.
    let seen = good(
        &server,
        &[
            "agent",
            "send",
            &agent,
            "cat tracked ~/notes; ls -A | wc -l",
        ],
    );
    assert_eq!(seen, "1\nsecret\n8\n");
    let forward = good(&server, &["agent", "rollback", &agent, &second]);
    assert!(forward.contains("forward again with"), "{forward}");
    assert_eq!(picture_without_holes(&server, &agent, "head"), present);
    let seen = good(
        &server,
        &[
            "agent",
            "send",
            &agent,
            "cat tracked big.out/f; wc -c <unsaved.out",
        ],
    );
    assert_eq!(seen, "2\nnew\n2000000\n");
    server.stop();
    server.assert_nothing_left();
}

/// The file of 1.5 GB zeros is told by its size, not read.
fn picture_without_holes(server: &Server, agent: &str, tick: &str) -> Picture {
    let output = server.mayfly(&["--json", "agent", "files", agent, tick]);
    let view: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let entries = view["entries"].as_array().expect("entries");
    let holes = entries.iter().find(|e| e["path"] == "/work/holes.out");
    assert_eq!(holes.expect("it is kept")["size"], 1500_u64 << 20);
    picture_but(server, agent, tick, "/work/holes.out")
}

fn picture_but(server: &Server, agent: &str, tick: &str, but: &str) -> Picture {
    let mut picture = Picture::new();
    for slot in ["/work", "/home/agent"] {
        let view = server.json(&["agent", "files", "-r", agent, tick, slot]);
        assert_eq!(view["more"], false);
        let entries = view["entries"].as_array().expect("entries").iter();
        for entry in entries.chain([&view["entry"]]) {
            let path = entry["path"].as_str().expect("a path");
            let mut told = entry.clone();
            // The history of the repository is many small files.
            let read = entry["kind"] == "file" && path != but && !path.contains("/.git/hooks/");
            if read {
                let bytes = server.mayfly(&["agent", "cat", agent, tick, path]);
                assert!(bytes.status.success(), "{path}: {}", told_of(&bytes));
                told["digest"] = digest(&bytes.stdout).into();
            }
            picture.insert(path.to_owned(), told.to_string());
        }
    }
    picture
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_05_files_and_session_move_together() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let mut ticks = Vec::new();
    for n in 1..=5 {
        let text =
            format!("echo {n} >>log; echo turn {n} >>~/session; echo {n} >last; echo did {n}");
        ticks.push(world.say(agent, &text).await.tick.expect("a tick"));
    }
    let view = world.commands().rollback(agent, Some(ticks[2])).await;
    let view = view.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((view.to, view.left), (Some(ticks[2]), Some(ticks[4])));
    let last = "tail -n 1 log; tail -n 1 ~/session; cat last; wc -l <log; wc -l <~/session";
    assert_eq!(world.reply(agent, last).await, "3\nturn 3\n3\n3\n3");
    // One row is files and session.
    let rows = "SELECT count(*) FROM agents a JOIN snapshots s ON s.id = a.head WHERE s.session IS \
                (SELECT session FROM snapshots WHERE id = s.parent)";
    assert_eq!(world.sql(rows), "1");
    // Transcripts are evidence: they stay, also of what was left.
    let left = world.commands().tick(ticks[4]).await.expect("it is there");
    assert!(!left.tick.in_head);
    let transcript = serde_json::to_string(&left.transcript).expect("plain data");
    assert!(transcript.contains("did 5"), "{transcript}");
    assert_eq!(world.commands().ticks(agent).await.expect("ticks").len(), 6);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_05_a_rollback_while_a_tick_runs_and_two_messages_wait_is_refused_with_the_way_out() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let first = world.say(agent, "echo one >f; echo ok").await.tick;
    let running = world
        .post(agent, "while [ ! -e go ]; do sleep 0.1; done")
        .await;
    world
        .until_sql(
            "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL",
            "1",
        )
        .await;
    let refused = async || match world.commands().rollback(agent, first).await {
        Err(RequestError::Conflict(told)) => told,
        other => panic!("{other:?}"),
    };
    let alone = refused().await;
    let stop = format!("`mayfly agent stop {}`", agent.short());
    assert!(
        alone.contains("running tick") && alone.contains(&stop),
        "{alone}"
    );
    let waiting = [
        world.post(agent, "echo two >>f; cat f").await,
        world.post(agent, "echo three >>f; cat f").await,
    ];
    let told = refused().await;
    let all = format!("`mayfly agent stop --all {}`", agent.short());
    assert!(told.contains("2 waiting") && told.contains(&all), "{told}");
    assert_eq!(world.sql("SELECT count(*) FROM head_moves"), "0");
    // Nothing was mixed: the tick is stopped, the others run on what was before it.
    world
        .commands()
        .stop(agent, StopScope::Running)
        .await
        .expect("it stops");
    world.outcome(&running).await;
    let mut said = Vec::new();
    for message in &waiting {
        said.push(world.outcome(message).await.reply.expect("a reply").text);
    }
    assert_eq!(said, ["one\ntwo", "one\ntwo\nthree"]);
    world
        .commands()
        .rollback(agent, first)
        .await
        .expect("nothing runs");
    assert_eq!(world.reply(agent, "cat f").await, "one");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rb_05_messages_that_wait_run_on_the_new_head() {
    let world = World::docker_with(Setup {
        worker: WorkerConfig {
            max_running: 1,
            grace_s: 5,
            ..WorkerConfig::default()
        },
        ..Setup::default()
    })
    .await;
    let (agent, other) = (world.shell().await, world.shell().await);
    let first = world.say(agent, "echo one >f").await.tick;
    world.say(agent, "echo two >>f").await;
    // The only place to run is taken.
    let long = world.post(other, "sleep 600").await;
    world
        .until_sql(
            "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL",
            "1",
        )
        .await;
    let waiting = [
        world.post(agent, "echo a >>f; cat f").await,
        world.post(agent, "echo b >>f; cat f").await,
    ];
    let view = world
        .commands()
        .rollback(agent, first)
        .await
        .expect("nothing of it runs");
    assert_eq!((view.agent.waiting, view.to), (2, first));
    world
        .commands()
        .stop(other, StopScope::Running)
        .await
        .expect("it stops");
    world.outcome(&long).await;
    let mut said = Vec::new();
    for message in &waiting {
        let settled = world.outcome(message).await;
        assert_eq!(settled.outcome, Some(MessageOutcome::Answered));
        said.push(settled.reply.expect("a reply").text);
    }
    assert_eq!(said, ["one\na", "one\na\nb"]);
    world.end().await;
}

async fn file(world: &World, agent: AgentId, path: &str) -> Option<String> {
    let looked = world
        .commands()
        .look(agent, None, path.into(), EVERYTHING)
        .await;
    match looked.ok()? {
        Looked::File(_, mut file) => {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut file, &mut text).expect("text");
            Some(text)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_an_agent_stood_on_can_be_gone_to_again() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let mut ticks = Vec::new();
    for n in 1..=3 {
        let tick = world.say(agent, &format!("echo {n} >f")).await.tick;
        ticks.push(tick.expect("a tick"));
    }
    let fork = world.commands().fork(agent, None).await.expect("a fork").id;
    // The fork goes back to before its first tick, then forward to what it never ran itself.
    for _ in 0..3 {
        world.commands().rollback(fork, None).await.expect("back");
    }
    assert_eq!(file(&world, fork, "/work/f").await, None);
    let nothing = world.commands().rollback(fork, None).await;
    assert!(
        matches!(nothing, Err(RequestError::Conflict(_))),
        "{nothing:?}"
    );
    for (n, tick) in ticks.iter().enumerate().rev() {
        world
            .commands()
            .rollback(fork, Some(*tick))
            .await
            .expect("forward");
        assert_eq!(
            file(&world, fork, "/work/f").await,
            Some(format!("{}\n", n + 1))
        );
    }
    // Two branches from one state, and from one to the other.
    let left = world.say(fork, "echo left >f").await.tick.expect("a tick");
    world
        .commands()
        .rollback(fork, Some(ticks[0]))
        .await
        .expect("back");
    let right = world.say(fork, "echo right >f").await.tick.expect("a tick");
    world
        .commands()
        .rollback(fork, Some(left))
        .await
        .expect("across");
    assert_eq!(
        file(&world, fork, "/work/f").await.as_deref(),
        Some("left\n")
    );
    world
        .commands()
        .rollback(fork, Some(right))
        .await
        .expect("and back");
    assert_eq!(
        file(&world, fork, "/work/f").await.as_deref(),
        Some("right\n")
    );
    // A tick of the fork is none of the other's.
    let foreign = world.commands().rollback(agent, Some(left)).await;
    assert!(
        matches!(foreign, Err(RequestError::NotFound { .. })),
        "{foreign:?}"
    );
    assert_eq!(world.reply(agent, "cat f").await, "3");
    // Also where the one it was forked from is gone.
    world
        .commands()
        .remove_agent(agent, true)
        .await
        .expect("removed");
    let unpinned = "SELECT count(*) FROM layers";
    world.until_sql(unpinned, "5").await;
    world
        .commands()
        .rollback(fork, Some(ticks[2]))
        .await
        .expect("forward");
    assert_eq!(world.reply(fork, "cat f").await, "3");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_keeps_its_layers_until_it_is_done() {
    let world = World::docker().await;
    let (read, other) = (world.shell().await, world.shell().await);
    let tick = world.say(read, "echo kept >f").await.tick;
    world.say(other, "echo gone >f").await;
    let db = world.service().worker().tools.db.clone();
    let head = world
        .commands()
        .agent(read)
        .await
        .expect("it is there")
        .head;
    let pinned = db
        .pin(read, &[head])
        .await
        .expect("a pin")
        .expect("it is kept");
    for agent in [read, other] {
        world
            .commands()
            .remove_agent(agent, false)
            .await
            .expect("removed");
    }
    // What nobody reads is removed meanwhile; what is read stays, and is whole.
    world.until_sql("SELECT count(*) FROM layers", "1").await;
    let layer = world
        .data_dir()
        .join("l")
        .join(pinned.states[0].layers[0].as_str());
    assert_eq!(
        std::fs::read_to_string(layer.join("work/f")).expect("kept"),
        "kept\n"
    );
    assert!(tick.is_some());
    let gc = async || {
        world
            .commands()
            .gc(Ask::default())
            .await
            .expect("it collects")
    };
    gc().await;
    assert!(layer.exists());
    drop(pinned);
    gc().await;
    world.until_sql("SELECT count(*) FROM layers", "0").await;
    world.until_sql("SELECT count(*) FROM pins", "0").await;
    assert!(!layer.exists());
    world.end().await;
}

#[test]
fn pins_of_a_reader_that_died_go_at_the_next_start() {
    let mut server = started();
    let agent = server.agent();
    say(&server, &agent, "echo 1 >f; echo ok");
    server.kill();
    let pin = "INSERT INTO pins (id, layer, reason, created_at) SELECT 'r.0.' || id, id, 'diff', 0 FROM layers; SELECT changes()";
    let database = server.data_dir().join("mayfly.db");
    let output = Command::new("sqlite3").arg(&database).arg(pin).output();
    assert_eq!(told(&output.expect("sqlite3 starts")).0.trim(), "1");
    server.start();
    assert_eq!(server.sql("SELECT count(*) FROM pins"), "0");
    server.stop();
    server.assert_nothing_left();
}

/// Writes a state's files below a folder, as the API gives them.
fn write_out(server: &Server, agent: &str, tick: &str, into: &Path) {
    let view = server.json(&["agent", "files", "-r", agent, tick, "/work"]);
    std::fs::create_dir_all(into.join("work")).expect("a folder");
    for entry in view["entries"].as_array().expect("entries") {
        let path = entry["path"].as_str().expect("a path");
        let target = into.join(path.trim_start_matches('/'));
        match entry["kind"].as_str() {
            Some("folder") => std::fs::create_dir_all(&target).expect("a folder"),
            Some("link") => {
                let to = entry["target"].as_str().expect("a target");
                std::os::unix::fs::symlink(to, &target).expect("a link");
            }
            _ => {
                let output = server.mayfly(&["agent", "cat", agent, tick, path]);
                assert!(output.status.success(), "{}", told_of(&output));
                std::fs::write(&target, &output.stdout).expect("a file");
                let mode = entry["mode"].as_u64().expect("a mode") as u32;
                let mode = std::os::unix::fs::PermissionsExt::from_mode(mode & 0o777);
                std::fs::set_permissions(&target, mode).expect("a mode");
            }
        }
    }
}

fn shell(folder: &Path, line: &str) -> String {
    let output = Command::new("sh")
        .arg("-c")
        .arg(line)
        .current_dir(folder)
        .output();
    let output = output.expect("sh starts");
    assert!(output.status.success(), "{line}: {:?}", told(&output));
    told(&output).0
}

#[test]
fn what_diff_prints_is_what_git_applies() {
    let mut server = started();
    let agent = server.agent();
    let made = "seq 1 40 >numbers; printf 'no end' >end; echo moved >old; mkdir -p d/e; \
                echo deep >d/e/f; echo gone >gone; ln -s numbers link; echo run >script; \
                printf 'caf\\351\\n' >latin; echo t >type; echo ok";
    let first = say(&server, &agent, made);
    let changed = "sed -i 's/^20$/twenty/; 1d' numbers; printf 'an end\\n' >end; mv old new; \
                   mv d g; rm gone; ln -sfn end link; chmod 755 script; echo more >>latin; \
                   rm type; ln -s x type; mkdir only; echo q >\"$(printf 'odd\\tname\\033[31m')\"; \
                   printf '\\000' >zero; echo ok";
    let second = say(&server, &agent, changed);
    let patch = server.mayfly(&["agent", "diff", &agent, &first, &second]);
    let shown = told(&patch).0;
    for line in [
        "rename from work/old\nrename to work/new\n",
        "rename from work/d\nrename to work/g\n",
        "old mode 100644\nnew mode 100755\n",
        "diff --git \"a/work/odd\\tname\\033[31m\" \"b/work/odd\\tname\\033[31m\"\n",
        "Binary files a/work/zero and b/work/zero differ\n",
        "@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4\n@@ -17,7 +16,7 @@\n 17\n 18\n 19\n-20\n+twenty\n",
        "-no end\n\\ No newline at end of file\n+an end\n",
        "deleted file mode 100644\n--- a/work/type\n",
        "new file mode 120000\n--- /dev/null\n+++ b/work/type\n@@ -0,0 +1 @@\n+x\n",
        "+++ b/work/only",
    ] {
        match line.contains("only") {
            true => assert!(shown.contains("diff --git a/work/only b/work/only\nnew file mode 04")),
            false => assert!(shown.contains(line), "{line}\n{shown}"),
        }
    }
    assert!(!shown.contains('\u{1b}'), "{shown}");

    // What git cannot know is left out: whole folders, binaries.
    let scratch = tempfile::tempdir().expect("a folder");
    let (before, after) = (scratch.path().join("a"), scratch.path().join("b"));
    write_out(&server, &agent, &first, &before);
    write_out(&server, &agent, &second, &after);
    std::fs::rename(before.join("work/d"), before.join("work/g")).expect("moved");
    std::fs::remove_file(after.join("work/zero")).expect("removed");
    let mut applied = Vec::new();
    let mut take = false;
    for line in patch.stdout.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"diff --git ") {
            let told = String::from_utf8_lossy(line);
            take = ["/zero", "a/work/d ", "/only"]
                .iter()
                .all(|name| !told.contains(name));
        }
        if take {
            applied.extend_from_slice(line);
        }
    }
    std::fs::write(scratch.path().join("patch"), applied).expect("written");
    shell(
        &before,
        "GIT_CEILING_DIRECTORIES=/ git apply --whitespace=nowarn ../patch",
    );
    std::fs::create_dir(before.join("work/only")).expect("a folder");
    assert_eq!(
        shell(
            scratch.path(),
            "diff -r --no-dereference a b && stat -c %a a/work/script"
        ),
        "755\n"
    );

    // Backwards, the other forms, and between branches.
    let back = good(
        &server,
        &["agent", "diff", "--name-only", &agent, &second, &first],
    );
    assert!(back.lines().any(|name| name == "/work/gone"), "{back}");
    assert!(back.contains("\"/work/odd\\tname\\033[31m\""), "{back}");
    let stat = good(&server, &["agent", "diff", "--stat", &agent]);
    assert!(
        stat.contains("renamed  /work/d -> /work/g (with all 2 below)"),
        "{stat}"
    );
    assert!(
        stat.contains("mode     /work/script  0644 -> 0755")
            || stat.contains("/work/script 0644 -> 0755"),
        "{stat}"
    );
    let fork = good(&server, &["agent", "fork", &agent, &first])
        .trim()
        .to_owned();
    let branch = say(&server, &fork, "rm -rf ./*; echo alone >branch; echo ok");
    let across = good(
        &server,
        &["agent", "diff", "--name-only", &agent, &second, &branch],
    );
    assert!(
        across.contains("/work/branch") && across.contains("/work/script"),
        "{across}"
    );
    let stranger = server.agent();
    let foreign = refused(&server, &["agent", "diff", &stranger, &first, &second], 3);
    assert!(foreign.contains("its forks or its origin"), "{foreign}");
    let json = server.json(&["agent", "diff", &agent, &first, &second]);
    let changes = json["changes"].as_array().expect("changes");
    let numbers = changes
        .iter()
        .find(|c| c["path"] == "/work/numbers")
        .expect("it changed");
    assert!(
        numbers["text"].as_str().expect("lines").contains("+twenty"),
        "{numbers}"
    );
    server.stop();
    server.assert_nothing_left();
}

#[test]
fn files_of_any_state_are_listed_and_sent_but_never_run() {
    let mut server = started();
    let agent = server.agent();
    let made = "echo '<script>alert(1)</script>' >page.html; ln -s /etc/passwd link; mkdir d; \
                echo x >\"d/$(printf 'a\\377b')\"; echo y >\"d/$(printf 'n\\nl')\"; \
                head -c 3000000 /dev/urandom >big; sha256sum <big";
    let first = say(&server, &agent, made);
    let second = say(&server, &agent, "rm -rf ./*; mkdir big; echo ok");
    let listed = good(&server, &["agent", "files", &agent, &first]);
    for name in ["big", "d/", "link -> /etc/passwd", "page.html"] {
        assert!(
            listed
                .lines()
                .any(|line| line.ends_with(&format!(" {name}"))),
            "{listed}"
        );
    }
    assert!(listed.contains("lrwxrwxrwx 1000:1000"), "{listed}");
    let deep = good(&server, &["agent", "files", "-r", &agent, &first]);
    assert!(
        deep.contains("\"d/a\\377b\"\n") && deep.contains("\"d/n\\nl\"\n"),
        "{deep}"
    );
    assert_eq!(
        good(&server, &["agent", "files", &agent]).lines().count(),
        1
    );
    assert_eq!(
        good(&server, &["agent", "files", &agent, "/"])
            .lines()
            .count(),
        2
    );

    let sum = server.json(&["tick", "show", &first]).to_string();
    let big = server.mayfly(&["agent", "cat", &agent, &first, "big"]);
    assert_eq!(big.stdout.len(), 3_000_000);
    assert!(sum.contains(digest(&big.stdout).split(' ').next().expect("a digest")));
    // Whoever wants only the beginning gets it.
    let mut head = server.command(&["agent", "cat", &agent, &first, "big"]);
    let mut child = head.stdout(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let ended = child.wait().expect("it ends");
    assert!(ended.success() || ended.signal() == Some(13), "{ended}");

    let link = refused(&server, &["agent", "cat", &agent, &first, "link"], 4);
    assert!(link.contains("a link to /etc/passwd"), "{link}");
    let folder = refused(&server, &["agent", "cat", &agent, &second, "big"], 4);
    assert!(folder.contains("is a folder"), "{folder}");
    let gone = refused(&server, &["agent", "cat", &agent, &second, "page.html"], 3);
    assert!(
        gone.contains("no file \"/work/page.html\" in that state"),
        "{gone}"
    );
    for (outside, code) in [("/etc/passwd", 3), ("../etc/passwd", 4)] {
        refused(&server, &["agent", "cat", &agent, &first, outside], code);
    }

    let ask = |path: &str| {
        let path = format!("/v1/agents/{agent}/files{path}");
        on_socket(server.data_dir(), &get(&path))
    };
    let page = ask(&format!("/work/page.html?tick={first}"));
    assert_eq!(
        (page.status, page.body.as_str()),
        (200, "<script>alert(1)</script>\n")
    );
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-length", "26"),
        (
            "content-disposition",
            "attachment; filename*=UTF-8''page.html",
        ),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; sandbox"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    assert_eq!(ask(&format!("/work/d/a%FFb?tick={first}")).body, "x\n");
    assert_eq!(ask(&format!("/work/d/n%0Al?tick={first}")).body, "y\n");
    let folder = ask(&format!("/work/d?tick={first}")).json();
    assert_eq!(folder["entries"][0]["path_encoded"], "/work/d/a%FFb");
    assert_eq!(ask("/").json()["entries"][1]["path"], "/work");
    ask("/work/none").problem(404, "not-found");
    ask("/etc/passwd").problem(404, "not-found");
    ask("/work/%2e%2e/etc/passwd").problem(400, "invalid");
    ask("/work/a%00b").problem(400, "invalid");
    ask("/work?tick=ffffffff").problem(404, "not-found");
    ask("/work?follow=true").problem(400, "invalid");
    let diff = format!("/v1/agents/{agent}/diff?from={first}&to={second}");
    for (format, has) in [
        ("stat", "entries, +"),
        ("names", "/work/page.html\n"),
        ("unified", "deleted file mode"),
    ] {
        let answer = on_socket(server.data_dir(), &get(&format!("{diff}&format={format}")));
        assert_eq!(
            answer.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        assert!(answer.body.contains(has), "{}", answer.body);
    }
    on_socket(server.data_dir(), &get(&format!("{diff}&format=html"))).problem(400, "invalid");
    server.stop();
    server.assert_nothing_left();
}

#[test]
fn the_graph_shows_what_was_left_what_was_discarded_and_where_forks_begin() {
    let mut server = started();
    let agent = server.agent();
    let empty = good(&server, &["agent", "log", "--graph", &agent]);
    assert_eq!(empty, "o the image's own files (head)\n");
    let first = say(&server, &agent, "echo 1 >f; echo ok");
    let left = say(&server, &agent, "echo 2 >f; echo ok");
    good(&server, &["agent", "rollback", &agent, &first]);
    let discarded = server.json(&["agent", "send", &agent, "echo 3 >f; kill -9 $$"]);
    let discarded = discarded["tick"].as_str().expect("a tick").to_owned();
    let fork = good(&server, &["agent", "fork", &agent]).trim().to_owned();
    let last = say(&server, &agent, "echo 4 >f; echo ok");
    let graph = good(&server, &["agent", "log", "--graph", &agent]);
    let short = |tick: &str| tick[tick.len() - 8..].to_owned();
    // Up to the first date.
    let date = |rest: &[u8]| rest[0] == b' ' && rest[5] == b'-' && rest[8] == b'-';
    let cut = |line: &str| {
        let at = line.as_bytes().windows(9).position(date);
        line[..at.unwrap_or(line.len())].to_owned()
    };
    let drawn: Vec<String> = graph.lines().map(cut).collect();
    let node = |lanes: &str, tick: &str, marks: &str| format!("{lanes} {}{marks}", short(tick));
    assert_eq!(
        drawn,
        [
            node("*", &last, " (head)"),
            node("| x", &discarded, ""),
            "|/".to_owned(),
            node("| *", &left, " (left"),
            "|/".to_owned(),
            node("*", &first, &format!(" (fork {fork})")),
            "o the image's own files".to_owned(),
        ],
        "{graph}"
    );
    let from_fork = good(&server, &["agent", "log", "--graph", &fork]);
    assert!(from_fork.contains("(head, forked here)"), "{from_fork}");
    assert!(
        from_fork.contains(&format!("{} of {}", short(&first), short(&agent))),
        "{from_fork}"
    );
    let json = server.json(&["agent", "log", "--graph", &agent]);
    assert_eq!(json["nodes"].as_array().expect("nodes").len(), 4);
    let reasons = json["moves"]
        .as_array()
        .expect("moves")
        .iter()
        .map(|m| &m["reason"]);
    assert_eq!(reasons.collect::<Vec<_>>(), ["rollback", "fork"]);
    server.stop();
    server.assert_nothing_left();
}

#[test]
fn a_folder_of_many_files_is_listed_whole_and_the_api_gives_it_in_pages() {
    let mut server = started();
    let agent = server.agent();
    say(
        &server,
        &agent,
        "mkdir many; cd many; seq 2500 | xargs touch; echo ok",
    );
    let view = server.json(&["agent", "files", &agent, "head", "/work/many"]);
    assert_eq!(view["entries"].as_array().expect("a list").len(), 2500);
    assert_eq!(view["more"], false);
    let get = |query: &str| {
        let path = format!("/v1/agents/{agent}/files/work/many?{query}");
        on_socket(server.data_dir(), &get(&path))
    };
    let page = get("limit=1000").json();
    assert_eq!(page["entries"].as_array().expect("a list").len(), 1000);
    let next = page["next"].as_str().expect("there are more").to_owned();
    let page = get(&format!("limit=1&after={next}")).json();
    let (last, first) = (&next, page["entries"][0]["path"].as_str());
    assert!(first.expect("a path") > &last[..], "{page}");
    assert!(
        get("limit=1&after=/home/x")
            .problem(404, "not-found")
            .contains("first page")
    );
    get("limit=1&after=x").problem(400, "invalid");
    assert!(
        get("limit=5000")
            .problem(400, "invalid")
            .contains("limit=5000")
    );
    server.stop();
    server.assert_nothing_left();
}
