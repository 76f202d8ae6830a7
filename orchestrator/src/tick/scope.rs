//! Scope: the sandbox gets its permissions, and the prompt is composed.

use mayfly_init::arguments::GATEWAY_PORT;

use super::{Job, TickError, Tools, phase::Phase, spawn::Spawned};
use crate::{agent::Prompt, faults, gateway};

/// Most connections of one sandbox to its gateway at once.
const CONNECTIONS: u32 = 64;

/// A sandbox with its permissions and a prompt.
pub struct Scoped {
    pub(super) spawned: Spawned,
    pub(super) session: gateway::Session,
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
    let (forwarded, entered) = tokio::join!(
        control.forward(GATEWAY_PORT, CONNECTIONS),
        tools.db.enter_phase(&job.claim, Phase::Run, &job.image.id)
    );
    forwarded?;
    entered?;
    spawned.watch.lap(Phase::Scope);
    faults::point("scope.after");
    Ok(Scoped {
        spawned,
        session,
        prompt: Prompt {
            text: job.claim.message.text.clone(),
        },
    })
}
