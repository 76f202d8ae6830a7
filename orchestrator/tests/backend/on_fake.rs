//! What goes wrong on demand.

use std::{sync::Arc, time::Duration};

use mayfly_orchestrator::sandbox::{BackendError, fake::Fake};

use crate::stage::{Stage, fake, program, sh, until_exit};

async fn stage() -> (Arc<Fake>, Stage) {
    let fake = Arc::new(fake());
    let stage = Stage::on(fake.clone(), "docker:mayfly/tiny").await;
    (fake, stage)
}

#[tokio::test]
async fn cl_01_a_start_that_fails_leaves_nothing() {
    let (fake, stage) = stage().await;
    fake.script(|script| script.start_fails = 5);
    for _ in 0..5 {
        let attempt = stage.attempt();
        let error = stage.backend.spawn(&attempt.spec).await.unwrap_err();
        assert!(matches!(
            error,
            BackendError::Failed {
                action: "start container",
                ..
            }
        ));
        stage.remove(&attempt).await;
    }
    let attempt = stage.attempt();
    assert_eq!(stage.tick(&attempt, "echo up").await.out(), "up\n");
    stage.nothing_left().await;
}

#[tokio::test]
async fn cl_03_a_removal_that_is_refused_is_tried_again() {
    let (fake, stage) = stage().await;
    let attempt = stage.attempt();
    stage.spawn(&attempt).await;
    fake.script(|script| script.removals = [409, 409, 500].into());
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn cl_03_without_the_proof_there_is_no_ok() {
    let (fake, stage) = stage().await;
    let attempt = stage.attempt();
    stage.spawn(&attempt).await;
    fake.script(|script| script.removals = vec![409; 1000].into());
    let short = Duration::from_millis(50);
    assert!(
        stage
            .backend
            .remove(&attempt.spec.names, short)
            .await
            .is_err()
    );
    fake.script(|script| script.removals.clear());
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn an_init_that_is_never_ready_is_given_up() {
    let (fake, stage) = stage().await;
    fake.script(|script| script.never_ready = true);
    let attempt = stage.attempt();
    let error = stage.backend.spawn(&attempt.spec).await.unwrap_err();
    assert!(matches!(error, BackendError::NotReady { .. }), "{error}");
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn an_engine_that_is_down_says_so_and_comes_back() {
    let (fake, stage) = stage().await;
    fake.script(|script| script.down = true);
    let attempt = stage.attempt();
    let error = stage.backend.spawn(&attempt.spec).await.unwrap_err();
    assert!(matches!(error, BackendError::Down { .. }), "{error}");
    fake.script(|script| script.down = false);
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}

#[tokio::test]
async fn at_08_out_of_memory_is_told_and_nothing_is_kept() {
    let (fake, stage) = stage().await;
    fake.script(|script| script.out_of_memory = true);
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let exit = sh(&mut live, "echo x > a").await.exit;
    assert_eq!((exit.code, exit.signal, exit.oom), (None, Some(9), true));
    stage.remove(&attempt).await;
    assert_eq!(std::fs::read_dir(&attempt.upper).unwrap().count(), 0);
    stage.nothing_left().await;
}

#[tokio::test]
async fn a_silent_program_is_ended_by_a_signal() {
    let (fake, stage) = stage().await;
    fake.script(|script| script.silent = true);
    let attempt = stage.attempt();
    let mut live = stage.spawn(&attempt).await;
    let id = live
        .control
        .start(program(&["sh", "-c", "echo x"]))
        .await
        .unwrap();
    let short = Duration::from_millis(50);
    assert!(
        tokio::time::timeout(short, live.notices.next())
            .await
            .is_err()
    );
    let terminate = mayfly_init::protocol::Signal::Terminate;
    live.control.signal(id, terminate).await.unwrap();
    assert_eq!(
        until_exit(&mut live.notices, id).await.exit.signal,
        Some(15)
    );
    stage.remove(&attempt).await;
    stage.nothing_left().await;
}
