//! A state is what the agent left, bit for bit, and it stays with the image it was made on.

use mayfly_domain::SandboxRef;
use mayfly_orchestrator::command::{NewAgent, Send};
use mayfly_tests::{engine, world::World};

const ODD: &str = r#"
mkdir z; echo secret > z/in; chmod 000 z
echo r > ro; chmod 0440 ro
cp /bin/true su; chmod 6755 su
head -c 33554432 /dev/urandom > big; for n in 1 2 3 4; do ln big big$n; done
touch -d '2001-02-03 04:05:06.789012345' old
python3 -c 'import os; os.setxattr("old", "user.note", b"\x00\xff")'
git init -q r; cd r; echo a > a; git add a
git -c user.name=a -c user.email=a@a.test commit -qm x; cd ..
echo done"#;

const SEEN: &str = r#"
git -C r status --porcelain; git -C r log --format=%s
stat -c '%n %a %u %g' z ro su
stat -c '%h' big big1 big2 big3 big4 | sort -u; stat -c '%i' big big1 big2 big3 big4 | sort -u | wc -l
stat -c '%y' old; python3 -c 'import os; print(os.getxattr("old", "user.note"))'
ls z 2>/dev/null || echo locked; chmod 700 z; cat z/in"#;

#[tokio::test(flavor = "multi_thread")]
async fn sn_10_modes_links_times_and_owners_are_there_again() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let first = world.say(agent, ODD).await;
    let told = first.reply.expect("a reply").text;
    assert!(told.starts_with("done"), "{told}");
    let tick = world
        .commands()
        .tick(first.tick.expect("a tick"))
        .await
        .unwrap()
        .tick;
    let stripped = |note: &String| note.contains("setuid") && note.contains("/work/su");
    assert!(tick.notes.iter().any(stripped), "{:?}", tick.notes);
    assert!(
        tick.usage.layer_bytes < 40 << 20,
        "five names, one content: {:?}",
        tick.usage
    );
    let wanted = "x\nz 0 1000 1000\nro 440 1000 1000\nsu 755 1000 1000\n5\n1\n\
                  2001-02-03 04:05:06.789012345 +0000\nb'\\x00\\xff'\nlocked\nsecret";
    assert_eq!(world.reply(agent, SEEN).await, wanted);
    world.end().await;
}

fn build(name: &str, version: u32) {
    let script = format!(
        "printf 'FROM mayfly/base\\nENV VERSION={version} TOOL_HOME=/opt/v{version}\\n' | \
         DOCKER_BUILDKIT=0 docker build -q -t {name} - 2>&1"
    );
    engine::run("sh", &["-c", &script]);
}

/// The image is built again under the same name: old agents stay on theirs, new ones get the new
/// one, and an old one moves for a tick with its files when a person says so.
#[tokio::test(flavor = "multi_thread")]
async fn up_02_a_rebuilt_image_leaves_old_agents_where_they_are() {
    let world = World::docker().await;
    let name = format!("mayfly-test-up-{}", &world.prefix()[7..15]);
    let sandbox: SandboxRef = format!("docker:{name}").parse().expect("a reference");
    let new = NewAgent {
        profile: None,
        sandbox: Some(sandbox.clone()),
    };
    build(&name, 1);
    let old = world.commands().create_agent(new.clone()).await.unwrap().id;
    assert_eq!(world.reply(old, "echo $VERSION > v; cat v").await, "1");
    build(&name, 2);
    assert_eq!(world.reply(old, "echo $VERSION; cat v").await, "1\n1");
    let fresh = world.commands().create_agent(new).await.unwrap().id;
    assert_eq!(world.reply(fresh, "echo $VERSION").await, "2");
    let moved = Send {
        text: "echo $VERSION $TOOL_HOME; cat v".to_owned(),
        files: Vec::new(),
        author: mayfly_domain::Author::local("tester"),
        idempotency_key: None,
        sandbox: Some(sandbox),
    };
    let posted = world.commands().send(old, moved).await.unwrap();
    let reply = world.outcome(&posted).await.reply.expect("a reply");
    assert_eq!(reply.text, "2 /opt/v2\n1");
    engine::run("docker", &["rmi", &name]);
    world.end().await;
}
