//! Scope: the sandbox gets its permissions and the message's files, and the prompt is composed.

use mayfly_domain::Attachment;
use mayfly_init::arguments::GATEWAY_PORT;

use super::{Job, TickError, Tools, phase::Phase, received, spawn::Spawned, state};
use crate::{agent::Prompt, faults, gateway, worker::running::Asks};

/// Most connections of one sandbox to its gateway at once.
const CONNECTIONS: u32 = 64;

/// A sandbox with its permissions, its files and a prompt.
pub struct Scoped {
    pub(super) spawned: Spawned,
    pub(super) session: gateway::Session,
    pub(super) asks: Asks,
    pub(super) prompt: Prompt,
}

/// See the module.
pub async fn scope(tools: &Tools, job: &Job, mut spawned: Spawned) -> Result<Scoped, TickError> {
    faults::point("scope.before");
    let session = gateway::Session::open(
        &job.claim.names.sockets,
        spawned.live.init_pid,
        &tools.supervisor,
    )
    .map_err(|error| TickError::Control(error.into()))?;
    faults::point("scope.opened");
    let control = &spawned.live.control;
    let mut asks = tools.running.enter(
        job,
        control.clone(),
        spawned.live.init_pid,
        spawned.uppers.clone(),
        &tools.supervisor,
    );
    let limits = &job.profile.limits;
    let prompt = Prompt {
        messages: std::mem::take(&mut spawned.messages),
        form: job.profile.prompt,
    };
    let files: Vec<Attachment> = prompt.files().cloned().collect();
    if !job.claim.merged.is_empty() && received::fits(&files, limits).is_err() {
        return Err(TickError::Crowded);
    }
    tokio::select! {
        given = received::hand_over(tools, control, &files, limits) => given?,
        cause = asks.next(), if !files.is_empty() => {
            return Err(TickError::AskedEarly(Box::new(state::asked_early(cause, limits))));
        }
    }
    let (forwarded, entered) = tokio::join!(
        control.forward(GATEWAY_PORT, CONNECTIONS),
        tools.db.enter_run(&job.claim, &job.image.id)
    );
    forwarded?;
    if !entered? {
        return Err(TickError::Grown);
    }
    spawned.watch.lap(Phase::Scope);
    faults::point("scope.after");
    Ok(Scoped {
        prompt,
        spawned,
        session,
        asks,
    })
}
