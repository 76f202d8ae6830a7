//! What only a real engine can show.

use std::{os::unix::fs::MetadataExt, path::PathBuf, sync::Arc, time::Duration};

use bollard::{
    Docker as Client,
    models::ContainerCreateBody,
    query_parameters::{CreateContainerOptionsBuilder, StartContainerOptions},
};
use mayfly_domain::SandboxRef;
use mayfly_orchestrator::{
    clock::{Lease, STALE, boot_time},
    sandbox::{
        Backend, BackendError, Found, Names, disk,
        docker::{Docker, DockerOptions, INSTALLATION_LABEL},
    },
    supervise::Supervisor,
};

use crate::daemon::{Daemon, SILENCE};
use crate::stage::{Stage, chain, program, sh, until_exit};

async fn client() -> Client {
    let client = Client::connect_with_unix_defaults().expect("a socket");
    client.negotiate_version().await.expect("an engine")
}

#[tokio::test]
async fn cl_01_a_start_that_fails_leaves_nothing() {
    let stage = Stage::docker().await;
    for _ in 0..3 {
        let mut attempt = stage.attempt();
        attempt.spec.slots[0].lowers = vec![PathBuf::from("/no/such/layer")];
        match stage.backend.spawn(&attempt.spec).await {
            Err(BackendError::Failed { action, name, .. }) => {
                assert_eq!(
                    (action, name),
                    ("start container", attempt.spec.names.container.clone())
                );
            }
            other => panic!("{other:?}"),
        }
        stage.remove(&attempt).await;
    }
    stage.nothing_left().await;
}

#[tokio::test]
async fn an_unknown_runtime_is_named_and_leaves_nothing() {
    let stage = Stage::docker().await;
    let mut attempt = stage.attempt();
    attempt.spec.runtime = Some("no-such-runtime".into());
    let error = stage.backend.spawn(&attempt.spec).await.unwrap_err();
    assert!(
        chain(&error).contains("no-such-runtime"),
        "{}",
        chain(&error)
    );
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn cl_02_containers_in_every_state_are_found_and_removed() {
    let stage = Stage::docker().await;
    let client = client().await;
    let prefix = Names::prefix(stage.installation);
    let all = ["created", "running", "paused", "exited"];
    for state in all {
        let name = format!("{prefix}{state}");
        let label = (
            INSTALLATION_LABEL.to_owned(),
            stage.installation.to_string(),
        );
        let argument = if state == "exited" { "0" } else { "600" };
        let body = ContainerCreateBody {
            image: Some(stage.image.id.clone()),
            entrypoint: Some(vec!["sleep".into(), argument.into()]),
            labels: Some([label].into()),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        client.create_container(Some(options), body).await.unwrap();
        if state != "created" {
            client
                .start_container(&name, None::<StartContainerOptions>)
                .await
                .unwrap();
        }
        if state == "paused" {
            client.pause_container(&name).await.unwrap();
        }
    }
    let found = stage.backend.found(&stage.owner()).await.unwrap();
    assert_eq!(found.len(), all.len(), "{found:?}");
    for one in found {
        let Found::Container(container) = one else {
            panic!("{one:?}")
        };
        let names = Names {
            container,
            volumes: Vec::new(),
            sockets: PathBuf::from("/run/mayfly/none"),
        };
        stage
            .backend
            .remove(&names, Duration::from_secs(30))
            .await
            .unwrap();
    }
    stage.nothing_left().await;
}

#[tokio::test]
async fn cl_04_a_container_removed_by_somebody_else_is_noticed() {
    let stage = Stage::docker().await;
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    live.control
        .start(program(&["sleep", "600"]))
        .await
        .unwrap();
    let options = bollard::query_parameters::RemoveContainerOptionsBuilder::new().force(true);
    let name = &attempt.spec.names.container;
    client()
        .await
        .remove_container(name, Some(options.build()))
        .await
        .unwrap();
    let end = tokio::time::timeout(Duration::from_secs(5), async {
        while live.notices.next().await.is_some() {}
    });
    end.await.expect("noticed in seconds");
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn cl_07_orphans_are_reaped_under_a_limit_of_processes() {
    let stage = Stage::docker().await;
    let mut attempt = stage.attempt();
    attempt.spec.limits.pids = 256;
    let mut live = stage.spawn(&attempt).await;
    let script = "i=0; while [ $i -lt 300 ]; do (true & exec true); i=$((i+1)); done; echo made";
    assert_eq!(sh(&mut live, script).await.out(), "made\n");
    for _ in 0..3 {
        assert_eq!(sh(&mut live, "true & true & echo on").await.out(), "on\n");
    }
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn at_08_out_of_memory_is_told() {
    let mut stage = Stage::docker().await;
    stage.image = stage.backend.resolve(&base()).await.expect("mayfly/base");
    let mut attempt = stage.attempt();
    attempt.spec.limits.memory_mib = 256;
    let mut live = stage.spawn(&attempt).await;
    let script = "x = b'x' * (400 << 20); print(len(x))";
    let id = live
        .control
        .start(program(&["python3", "-c", script]))
        .await
        .unwrap();
    let exit = until_exit(&mut live.notices, id).await.exit;
    assert_eq!((exit.code, exit.signal, exit.oom), (None, Some(9), true));
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

fn base() -> SandboxRef {
    "docker:mayfly/base".parse().unwrap()
}

#[tokio::test]
async fn the_filter_refuses_what_the_network_mode_does_not() {
    let mut stage = Stage::docker().await;
    stage.image = stage.backend.resolve(&base()).await.expect("mayfly/base");
    let attempt = stage.attempt();
    let script = r#"
import ctypes, errno, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    libc.syscall(number, *args)
    return errno.errorcode.get(ctypes.get_errno(), "ok")
def family(number):
    try: socket.socket(number, socket.SOCK_STREAM).close(); return "ok"
    except OSError as error: return errno.errorcode[error.errno]
fd = os.open("/work/f", os.O_CREAT | os.O_RDWR)
print("unix", family(1)); print("inet", family(2)); print("inet6", family(10))
print("vsock", family(40)); print("alg", family(38)); print("packet", family(17))
print("fallocate", call(285, fd, 1, ctypes.c_long(0), ctypes.c_long(1 << 30)))
print("io_uring", call(425, 1, 0)); print("keyctl", call(250, 0, 0)); print("userfaultfd", call(323, 0))
print("clone3", call(435, 0, 0)); print("unshare", call(272, 0x10000000)); print("mount", call(165, 0, 0, 0, 0, 0))
print("uid", os.getuid(), os.getgid(), open("/proc/self/status").read().split("CapEff:\t")[1][:16])
print("net", sorted(os.listdir("/sys/class/net")))
"#;
    let mut live = stage.spawn(&attempt).await;
    let id = live
        .control
        .start(program(&["python3", "-c", script]))
        .await
        .unwrap();
    let ran = until_exit(&mut live.notices, id).await;
    let wanted = "unix ok\ninet ok\ninet6 ok\nvsock EPERM\nalg EPERM\npacket EPERM\n\
        fallocate ENOTSUP\nio_uring EPERM\nkeyctl EPERM\nuserfaultfd EPERM\n\
        clone3 ENOSYS\nunshare EPERM\nmount EPERM\nuid 1000 1000 0000000000000000\nnet ['lo']\n";
    assert_eq!(
        ran.out(),
        wanted,
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn the_agent_reaches_neither_socket_nor_init() {
    let stage = Stage::docker().await;
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    for script in [
        "ls /mayfly/run",
        "cat /proc/1/environ",
        "kill -9 1",
        "echo x > /mayfly/bin/mayfly-init",
        "echo x > /etc/passwd",
    ] {
        let ran = sh(&mut live, script).await;
        assert_ne!(ran.exit.code, Some(0), "{script}: {ran:?}");
    }
    assert_eq!(sh(&mut live, "id -un").await.out(), "agent\n");
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn deleted_open_files_are_seen_from_outside() {
    let stage = Stage::docker().await;
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let script = "exec 3> big; rm big; head -c 8000000 /dev/zero >&3; echo written; sleep 600";
    let id = live
        .control
        .start(program(&["sh", "-c", script]))
        .await
        .unwrap();
    let said = live.notices.next().await.expect("written");
    assert_eq!(said.0, id);
    let device = std::fs::metadata(&attempt.upper).unwrap().dev();
    let deleted = disk::deleted_open(live.init_pid.expect("a pid"), device).unwrap();
    assert!(
        (8_000_000..9_000_000).contains(&deleted.bytes),
        "{deleted:?}"
    );
    assert_eq!(deleted.files, 1);
    assert!(disk::usage(&attempt.upper).unwrap().bytes < 1_000_000);
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

fn reached(host: &str) -> Docker {
    Docker::new(DockerOptions {
        host: Some(host.to_owned()),
        supervisor: Supervisor::default(),
        lease: Lease::default(),
    })
}

fn some_names() -> Names {
    Names {
        container: "mayfly-0-c".into(),
        volumes: vec!["mayfly-0-v".into()],
        sockets: PathBuf::from("/run/mayfly/none"),
    }
}

#[tokio::test]
async fn cl_03_refused_removals_are_tried_until_all_is_gone() {
    let answers = [
        (409, "removal of container c is already in progress"),
        (409, "removal of container c is already in progress"),
        (500, "device or resource busy"),
        (404, "no such container"),
        (409, "volume is in use"),
        (204, ""),
    ];
    let daemon = Daemon::new(("1.12", "1.41"), &answers);
    let patience = Duration::from_secs(30);
    reached(&daemon.address)
        .remove(&some_names(), patience)
        .await
        .unwrap();
    let heard = daemon.heard();
    assert_eq!(heard.len(), answers.len(), "{heard:?}");
    for (line, path) in heard
        .iter()
        .zip(["containers"; 4].iter().chain(&["volumes"; 2]))
    {
        assert!(
            line.starts_with(&format!("DELETE /v1.41/{path}/")),
            "{line}"
        );
    }
    assert!(
        heard[0].contains("force=true") && heard[0].contains("v=true"),
        "{}",
        heard[0]
    );
}

#[tokio::test]
async fn cl_03_without_the_proof_there_is_no_ok() {
    let answers = [
        (204, ""),
        (409, "volume is in use"),
        (409, "volume is in use"),
    ];
    let daemon = Daemon::new(("1.12", "1.41"), &answers);
    let patience = Duration::from_millis(60);
    match reached(&daemon.address)
        .remove(&some_names(), patience)
        .await
    {
        Err(BackendError::Failed { action, name, .. }) => {
            assert_eq!((action, &*name), ("remove volume", "mayfly-0-v"));
        }
        other => panic!("{other:?}"),
    }
}

/// Where the engine has lost the end of a container it waits for ever; it is not down for that, and others are removed.
#[tokio::test]
async fn cl_03_a_removal_that_is_never_answered_keeps_no_other() {
    let daemon = Daemon::new(("1.12", "1.41"), &[SILENCE]);
    let docker = reached(&daemon.address);
    let error = docker.remove(&some_names(), Duration::ZERO).await;
    let error = error.expect_err("nobody said that it is gone");
    assert!(matches!(error, BackendError::Failed { .. }), "{error:?}");
    let text = chain(&error);
    assert!(
        text.contains("mayfly-0-c") && text.contains("no answer within 20 s"),
        "{text}"
    );
    let next = docker.remove(&some_names(), Duration::ZERO).await;
    assert!(next.is_ok(), "{next:?}");
}

#[tokio::test]
async fn cf_06_an_engine_of_no_common_version_is_named_with_both_ranges() {
    for (oldest, newest) in [("1.12", "1.30"), ("1.90", "1.99")] {
        let daemon = Daemon::new((oldest, newest), &[]);
        let error = reached(&daemon.address).engine().await.unwrap_err();
        let text = chain(&error);
        assert!(
            text.contains(&format!("API {oldest} to {newest}, Mayfly 1.40 to ")),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_base_has_the_images_files_with_owners_and_links() {
    let stage = Stage::docker().await;
    let slots = [("bin".to_owned(), "/bin".to_owned())];
    let into = stage.dir.path().join("base");
    std::fs::create_dir(&into).unwrap();
    let facts = stage
        .backend
        .extract_base(&stage.owner(), &stage.image, &slots, &into)
        .await;
    assert_eq!(
        facts
            .unwrap_or_else(|error| panic!("{}", chain(&error)))
            .uid,
        1000
    );
    let bin = into.join("bin");
    assert_eq!(std::fs::metadata(&bin).unwrap().uid(), 1000);
    assert_eq!(std::fs::metadata(bin.join("busybox")).unwrap().uid(), 0);
    let link = std::fs::read_link(bin.join("sh")).unwrap();
    assert_eq!(link, PathBuf::from("busybox"));
    stage.untag().await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn a_slot_that_is_not_the_promised_overlay_is_refused_in_words() {
    let stage = Stage::docker().await;
    let attempt = stage.attempt();
    // A volume made before under the name keeps its own options, and the engine says nothing.
    let volume = bollard::models::VolumeCreateRequest {
        name: Some(attempt.spec.names.volumes[0].clone()),
        ..Default::default()
    };
    client().await.create_volume(volume).await.unwrap();
    match stage.backend.spawn(&attempt.spec).await {
        Err(BackendError::NotReady { reason, .. }) => {
            assert_eq!(reason, "a slot is not an overlay mount");
        }
        other => panic!("{other:?}"),
    }
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn an_engine_that_is_down_is_told_with_its_address() {
    for host in ["unix:///run/no-such-engine.sock", "tcp://127.0.0.1:1"] {
        match reached(host).engine().await {
            Err(BackendError::Down { address, .. }) => assert_eq!(address, host),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_sandbox_whose_worker_lost_its_claim_ends_itself() {
    let lease = Lease::default();
    let nearly_stale = STALE - Duration::from_secs(3);
    lease.confirm(boot_time() - nearly_stale);
    let backend = Docker::new(DockerOptions {
        host: None,
        supervisor: Supervisor::default(),
        lease,
    });
    let stage = Stage::on(Arc::new(backend), "docker:mayfly/tiny").await;
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let script = "trap '' TERM; while true; do sleep 1; done";
    live.control
        .start(program(&["sh", "-c", script]))
        .await
        .unwrap();
    // The last heartbeat goes out while the lease is fresh, and init waits STALE for the next.
    let lasting = tokio::time::timeout(STALE + Duration::from_secs(5), async {
        while live.notices.next().await.is_some() {}
    });
    lasting.await.expect("ended by itself");
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn a_stranger_on_the_control_socket_is_not_heard() {
    let stage = Stage::docker().await;
    let attempt = stage.attempt();
    let control = attempt.spec.names.sockets.join("control");
    let stranger = async {
        while !control.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let open = tokio::net::UnixStream::connect(&control).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        drop(open);
    };
    let (spawned, ()) = tokio::join!(stage.backend.spawn(&attempt.spec), stranger);
    match spawned {
        Err(BackendError::NotReady { reason, .. }) => {
            assert!(reason.contains("stranger"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn eight_at_once_and_the_cycle_is_short() {
    let stage = Arc::new(Stage::docker().await);
    let mut times = Vec::new();
    for _ in 0..10 {
        let attempt = stage.attempt();
        let begun = tokio::time::Instant::now();
        let mut live = stage.spawn(&attempt).await;
        assert_eq!(sh(&mut live, "true").await.exit.code, Some(0));
        stage.remove(&attempt).await;
        times.push(begun.elapsed());
    }
    times.sort();
    println!("cycle: median {:?}, longest {:?}", times[5], times[9]);
    let many = (0..8).map(|round| {
        let stage = stage.clone();
        async move {
            let attempt = stage.attempt();
            let ran = stage.tick(&attempt, &format!("echo {round}")).await;
            assert_eq!(ran.out(), format!("{round}\n"));
        }
    });
    futures_util::future::join_all(many).await;
    let Ok(stage) = Arc::try_unwrap(stage) else {
        panic!("still shared")
    };
    stage.nothing_left().await;
}
