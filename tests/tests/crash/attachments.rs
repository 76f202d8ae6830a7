//! The server dies while a file is uploaded, and between a message with files and its program.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
};

use serde_json::json;

use crate::scene::{PATIENCE, Scene};

const UPLOAD: &[&str] = &["blob.whole", "upload.stored"];
const HAND_OVER: &[&str] = &[
    "accept.after",
    "scope.before",
    "received.cleared",
    "received.put",
    "received.put:2",
    "run.started",
];

/// The hash of what was uploaded; an error if the server goes away before it says so.
fn upload(scene: &Scene, content: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(scene.server.data_dir().join("mayfly.sock"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!(
        "POST /v1/blobs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/octet-stream\r\ncontent-length: {}\r\n\r\n",
        content.len()
    );
    stream.write_all(format!("{head}{content}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let blob = answer.split("\"blob\":\"").nth(1);
    let blob = blob.and_then(|rest| rest.get(..64));
    Ok(blob.ok_or(io::ErrorKind::UnexpectedEof)?.to_owned())
}

#[test]
fn while_a_file_is_uploaded() {
    let mut scene = Scene::new();
    for point in UPLOAD {
        eprintln!("{point}");
        scene.server.start_with_fault(point);
        assert!(upload(&scene, point).is_err(), "{point}");
        scene.server.wait_dead();
        scene.server.start();
        assert_eq!(scene.server.sql("SELECT count(*) FROM uploads"), "0");
        let incoming = scene.server.data_dir().join("blobs/incoming");
        assert!(!incoming.exists(), "{point}");
        let blob = upload(&scene, point).expect("it lives");
        let path = format!("/v1/agents/{}/messages?wait=60", scene.agent);
        let body = json!({ "text": "cat received/a", "files": [{ "name": "a", "blob": blob }] });
        let (_, view) = scene.ask("POST", &path, "", Some(&body)).expect("it lives");
        assert_eq!(view["reply"]["text"], *point, "{view}");
        scene.server.stop();
        engine_forgets(&scene);
    }
    scene.server.start();
    scene.end();
}

/// The next round uploads again.
fn engine_forgets(scene: &Scene) {
    let database = scene.server.data_dir().join("mayfly.db");
    mayfly_tests::engine::change(&database, "DELETE FROM uploads");
}

#[test]
fn between_a_message_with_files_and_its_program() {
    let mut scene = Scene::new();
    for point in HAND_OVER {
        eprintln!("{point}");
        scene.server.start();
        let (one, two) = (
            upload(&scene, &format!("one {point}")).expect("it lives"),
            upload(&scene, "two").expect("it lives"),
        );
        scene.server.stop();
        scene.server.start_with_fault(point);
        let body = json!({
            "text": "cat received/a received/b; ls received | wc -l; echo x >> received/a",
            "files": [{ "name": "a", "blob": one }, { "name": "b", "blob": two }],
        });
        let path = format!("/v1/agents/{}/messages?wait=60", scene.agent);
        let _ = scene.ask("POST", &path, point, Some(&body));
        scene.server.wait_dead();
        scene.server.start();
        let (_, view) = scene
            .ask("POST", &path, point, Some(&body))
            .expect("it lives");
        assert_eq!(view["outcome"], "answered", "{point}: {view}");
        assert_eq!(view["reply"]["text"], format!("one {point}two2"), "{view}");
        assert!(view["attempts"].as_u64() <= Some(1), "{view}");
        assert_eq!(view["files"][1]["name"], "b", "{view}");
        scene.assert_tidy();
        scene.server.stop();
    }
    scene.server.start();
    scene.end();
}

/// Its row is gone, its content is there: the next collection takes it.
#[test]
fn while_an_upload_is_forgotten() {
    let mut scene = Scene::new();
    scene.server.start();
    let blob = upload(&scene, "old").expect("it lives");
    scene.server.stop();
    let place = scene
        .server
        .data_dir()
        .join("blobs")
        .join(&blob[..2])
        .join(&blob);
    let database = scene.server.data_dir().join("mayfly.db");
    mayfly_tests::engine::change(&database, "UPDATE uploads SET uploaded_at = 1");
    let path = place.to_str().expect("UTF-8");
    mayfly_tests::engine::run("touch", &["-d", "3 days ago", path]);
    // Housekeeping looks at blobs right after a start.
    scene.server.start_with_fault("garbage.blob");
    scene.server.wait_dead();
    assert_eq!(scene.server.sql("SELECT count(*) FROM uploads"), "0");
    assert!(place.exists());
    scene.server.start();
    let deadline = std::time::Instant::now() + PATIENCE;
    while place.exists() {
        assert!(std::time::Instant::now() < deadline, "it stays");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    scene.end();
}
