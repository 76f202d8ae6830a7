//! Data dirs that earlier versions wrote (`tests/fixtures/make`): each is opened, shown, and gone
//! on with.

use std::{
    fs,
    path::{Path, PathBuf},
};

use mayfly_tests::{
    engine::{self, run},
    server::Server,
};
use serde_json::json;

use crate::scene::Scene;

fn archives() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let entries = fs::read_dir(folder).expect("fixtures").flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.to_string_lossy().ends_with(".tar.zst"))
        .collect()
}

#[test]
fn up_01_up_03_every_old_data_dir_is_kept_and_opened_and_its_threads_go_on() {
    let archives = archives();
    assert!(!archives.is_empty());
    for archive in archives {
        eprintln!("{}", archive.display());
        open(&archive);
    }
}

fn open(archive: &Path) {
    let folder = tempfile::Builder::new()
        .prefix("mo")
        .tempdir()
        .expect("a folder");
    let data_dir = folder.path().join("d");
    fs::create_dir(&data_dir).expect("a folder");
    let (archive, into) = (
        archive.to_str().expect("UTF-8"),
        data_dir.to_str().expect("UTF-8"),
    );
    let unpack = "zstd -qdc \"$0\" | tar --extract --xattrs --xattrs-include='*' --numeric-owner \
                  --preserve-permissions --directory \"$1\"";
    run("sh", &["-c", unpack, archive, into]);

    let server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test")).at(&data_dir);
    let refused = server.mayfly(&["agent", "list"]);
    assert_eq!(refused.status.code(), Some(6), "like any copy");
    assert!(server.mayfly(&["adopt"]).status.success());
    let mut scene = Scene::on(server);
    scene.posted = 1000;
    scene.server.start();
    // As it was before, for whoever has to go back with the program.
    let kept = data_dir.join(concat!("mayfly.db.before-", env!("CARGO_PKG_VERSION")));
    let of = |database: &Path, query: &str| engine::sql(database, query);
    let newest = "SELECT max(version) FROM _sqlx_migrations";
    let [before, after] = [&kept, &data_dir.join("mayfly.db")]
        .map(|database| of(database, newest).parse::<u32>().expect("a number"));
    assert!(before < after, "{before} and {after}");
    assert_eq!(of(&kept, "SELECT count(*) FROM messages"), "18");

    let (fork, origin) = ("forked_from IS NOT NULL", "forked_from IS NULL");
    let agent = |which: &str| {
        let query = format!("SELECT id FROM agents WHERE {which}");
        scene.server.sql(&query)
    };
    let (fork, origin) = (agent(fork), agent(origin));
    let outcomes = scene
        .server
        .sql("SELECT outcome || ' ' || count(*) FROM messages GROUP BY outcome ORDER BY outcome");
    assert_eq!(outcomes, "answered 16\nnoticed 2");
    let listed = scene.server.json(&["agent", "list"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
    for verb in ["show", "log", "diff"] {
        let shown = scene.server.mayfly(&["agent", verb, &origin]);
        assert!(shown.status.success(), "agent {verb}: {shown:?}");
    }
    let ticks = scene.server.sql("SELECT id FROM ticks");
    for tick in ticks.lines() {
        let shown = scene.server.json(&["tick", "show", tick]);
        let transcript = shown["transcript"].as_array().map(Vec::len);
        assert!(transcript.is_some_and(|lines| lines >= 3), "{shown}");
    }

    // The last message of the old version told what both slots hold.
    let newest = "SELECT m.id FROM messages m ORDER BY m.created_at DESC LIMIT 1";
    let asked = scene
        .server
        .sql(&format!("SELECT text FROM messages WHERE id = ({newest})"));
    let told = scene.server.sql(&format!(
        "SELECT text FROM deliveries WHERE message = ({newest})"
    ));
    assert!(
        told.contains("holes") && told.contains("moved/b/one"),
        "{told}"
    );
    assert!(
        !told.contains("lost") && !told.contains(".bashrc"),
        "{told}"
    );
    for (place, agent) in [origin, fork].iter().enumerate() {
        let path = format!("/v1/agents/{agent}/messages?wait=60");
        // The image of that time may be gone; its files are not in the image.
        let body = json!({ "text": asked, "sandbox": "docker:mayfly/base" });
        let key = format!("again-{place}");
        let answer = scene.ask("POST", &path, &key, Some(&body));
        let (status, view) = answer.expect("the server answers");
        assert_eq!(
            (status, &view["reply"]["text"]),
            (200, &told.clone().into()),
            "{view}"
        );
    }
    // Both heads grow on; where the image is there, without another sandbox too.
    let image = scene.server.sql("SELECT DISTINCT image FROM agents");
    let listed = run("docker", &["images", "--all", "--quiet", "--no-trunc"]);
    if listed.lines().any(|id| id == image) {
        scene.agent = scene
            .server
            .sql("SELECT id FROM agents WHERE forked_from IS NULL");
        assert_eq!(scene.say("echo $T >> log; tail -n 1 log"), "token-1001-");
        assert_eq!(scene.say("wc -l < log"), "12");
    } else {
        eprintln!("image {image} is not here: only run in another sandbox");
    }
    let kept = scene.server.prefix();
    scene.end();
    engine::forget_images(&kept);
}

/// An earlier version left a tick in a state that this one does not know, of a profile that it does not have: the
/// tick is over, the thread is told once what is missing, and goes on by itself when that is there.
#[test]
fn up_03_what_an_earlier_version_left_open_is_told_once_and_goes_on() {
    let mut scene = Scene::new();
    scene.server.start();
    let posted = scene.post("echo $T >> log; sleep 6; echo got $T");
    scene.until_running(&posted);
    scene.server.kill();
    scene
        .server
        .change("UPDATE ticks SET phase = 'dreaming', progress = 'dreaming' WHERE outcome IS NULL");
    scene.server.change("UPDATE agents SET profile = 'before'");
    scene.server.start();
    let later = [(); 2].map(|()| scene.post("echo $T >> log; echo got $T"));
    let told = "SELECT count(*) FROM deliveries WHERE kind = 'waiting'";
    scene.until_sql(told, "1");
    // Looked at again, also by another start.
    scene.server.stop();
    scene.server.start();
    let agent = scene.server.agent();
    for _ in 0..3 {
        let other = scene.post_to(&agent, "sleep 1; echo $T");
        scene.reply(&other);
    }
    assert_eq!(scene.server.sql(told), "1", "one for all of them");
    let what = scene
        .server
        .sql("SELECT text FROM deliveries WHERE kind = 'waiting'");
    assert!(what.contains("no profile \"before\""), "{what}");
    scene.server.change("UPDATE agents SET profile = 'shell'");
    for message in [&posted, &later[0], &later[1]] {
        scene.assert_one(message, "answered", "answer");
    }
    assert_eq!(scene.say("wc -l < log"), "3");
    scene.end();
}
