//! The disk fills up in the middle of a seal. Alone in its program: it watches the named points.

use std::{fs, path::PathBuf, sync::Mutex};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::faults;
use mayfly_tests::{
    engine::run,
    world::{Setup, World},
};

/// Where the next seal finds no block left.
static FILL: Mutex<Option<PathBuf>> = Mutex::new(None);

fn fill_at_seal(point: &'static str) {
    if point != "seal.measured" {
        return;
    }
    let Some(path) = FILL.lock().unwrap().take() else {
        return;
    };
    let mut file = fs::File::create(path).unwrap();
    for size in [1 << 20, 4096] {
        let block = vec![1; size];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
    }
}

struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = self.0.path().join("m");
        let _ = std::process::Command::new("umount")
            .arg("--lazy")
            .arg(path)
            .status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sn_12_no_room_in_the_middle_of_a_seal_keeps_the_old_state_and_leaves_nothing() {
    let folder = Mounted(tempfile::Builder::new().prefix("md").tempdir().unwrap());
    let (image, mount) = (folder.0.path().join("image"), folder.0.path().join("m"));
    fs::File::create(&image)
        .unwrap()
        .set_len(192 << 20)
        .unwrap();
    fs::create_dir(&mount).unwrap();
    let [image, shown] = [&image, &mount].map(|path| path.to_str().unwrap());
    run("mkfs.ext4", &["-q", "-m", "0", image]);
    run("mount", &["-o", "loop", image, shown]);

    let mut setup = Setup::default();
    setup.disk.floor_mib = 0;
    setup.disk.ballast_mib = 16;
    let world = World::docker_in(setup, &mount).await;
    faults::watch(fill_at_seal);
    let agent = world.shell().await;
    let made = "for d in $(seq 300); do mkdir -p d/$d; echo $d >d/$d/f; done; echo made";
    assert_eq!(world.reply(agent, made).await, "made");
    let head = world.commands().agent(agent).await.unwrap().head;
    let layers = world.sql("SELECT count(*) FROM layers");

    // The seal makes each folder of the moved one anew.
    let filler = mount.join("filler");
    *FILL.lock().unwrap() = Some(filler.clone());
    let moved = world.say(agent, "mv d e; echo moved").await;
    assert_eq!(moved.outcome, Some(MessageOutcome::Noticed), "{moved:?}");
    let text = moved.reply.unwrap().text;
    assert_eq!(
        text,
        "moved\n\nthe host's disk is nearly full, changes discarded"
    );
    assert_eq!(world.commands().agent(agent).await.unwrap().head, head);
    assert_eq!(world.sql("SELECT count(*) FROM layers"), layers);
    fs::remove_file(filler).unwrap();
    for left in ["u", "t"] {
        let left = world.data_dir().join(left);
        assert_eq!(
            fs::read_dir(&left).unwrap().count(),
            0,
            "{}",
            left.display()
        );
    }
    let look = "ls; ls d | wc -l; cat d/300/f";
    assert_eq!(world.reply(agent, look).await, "d\n300\n300");
    world.end().await;
}
