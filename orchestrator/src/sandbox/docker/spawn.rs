//! Brings a sandbox up: listen, create, start, take init's one connection, wait for `Ready`.

use std::time::Duration;

use bollard::{
    Docker as Client,
    errors::Error,
    query_parameters::{
        CreateContainerOptionsBuilder, InspectContainerOptions, StartContainerOptions,
        WaitContainerOptionsBuilder,
    },
};
use futures_util::StreamExt;
use mayfly_init::exit::Code;
use tokio::net::UnixListener;

use super::{Docker, connect::status, create, failed_io};
use crate::{
    faults,
    sandbox::{BackendError, Control, ControlError, Live, Notices, SandboxSpec, control, sockets},
};

/// From the engine's answer to `start` until init is ready.
const READY: Duration = Duration::from_secs(20);

impl Docker {
    pub(super) async fn bring_up(&self, spec: &SandboxSpec) -> Result<Live, BackendError> {
        let name = &spec.names.container;
        let body = create::body(&self.paths().await?.seen_spec(spec)?)?;
        let client = self.client().await?;
        let listener = sockets::listen_control(&spec.names.sockets)
            .map_err(|error| failed_io(error, "listen in", &spec.names.sockets))?;

        let options = CreateContainerOptionsBuilder::new().name(name).build();
        if let Err(error) = client.create_container(Some(options), body).await {
            return Err(match status(&error) {
                Some(404) => BackendError::NoImage(spec.image.name.clone()),
                _ => self.failed(error, "create container", name).await,
            });
        }
        faults::point("spawn.created");
        if let Err(error) = client
            .start_container(name, None::<StartContainerOptions>)
            .await
        {
            return Err(self.failed(error, "start container", name).await);
        }
        faults::point("spawn.started");

        let not_ready = |reason: String| BackendError::NotReady {
            name: name.clone(),
            reason,
        };
        let meeting = async {
            tokio::select! {
                biased;
                met = self.meet(&client, name, listener) => met,
                reason = exit(&client, name) => Err(not_ready(reason)),
            }
        };
        let (pid, control, notices) = tokio::time::timeout(READY, meeting)
            .await
            .unwrap_or_else(|_| Err(not_ready(format!("nothing was heard for {READY:?}"))))?;
        Ok(Live {
            control,
            notices,
            init_pid: Some(pid),
        })
    }

    /// Takes one connection, closes the listener, and hears `Ready` of the container's PID 1.
    async fn meet(
        &self,
        client: &Client,
        name: &str,
        listener: UnixListener,
    ) -> Result<(u32, Control, Notices), BackendError> {
        let broken = |error: ControlError| BackendError::NotReady {
            name: name.to_owned(),
            reason: error.to_string(),
        };
        let seen = match client
            .inspect_container(name, None::<InspectContainerOptions>)
            .await
        {
            Ok(seen) => seen,
            Err(error) => return Err(self.failed(error, "inspect container", name).await),
        };
        let pid = seen.state.and_then(|state| state.pid).unwrap_or(0);
        let Some(pid) = u32::try_from(pid).ok().filter(|pid| *pid != 0) else {
            // It has ended already; its exit code says why.
            return std::future::pending().await;
        };
        let accepted = listener.accept().await;
        drop(listener);
        let (stream, _) = accepted.map_err(|error| broken(error.into()))?;
        sockets::check_peer(&stream, pid).map_err(broken)?;
        match control::open(stream, &self.supervisor, self.lease.clone(), READY).await {
            Ok((control, notices)) => Ok((pid, control, notices)),
            Err(ControlError::Closed) => std::future::pending().await,
            Err(error) => Err(broken(error)),
        }
    }
}

/// Waits for the end of a container that was started; why it ended, in words.
async fn exit(client: &Client, name: &str) -> String {
    let options = WaitContainerOptionsBuilder::new()
        .condition("not-running")
        .build();
    let mut ends = client.wait_container(name, Some(options));
    match ends.next().await {
        Some(Ok(end)) => ended(end.status_code),
        Some(Err(Error::DockerContainerWaitError { code, .. })) => ended(code),
        Some(Err(error)) => format!("the engine lost sight of it: {error}"),
        None => "the engine lost sight of it".to_owned(),
    }
}

fn ended(code: i64) -> String {
    match Code::of(code) {
        Some(code) => code.meaning().to_owned(),
        None => format!("init ended with code {code}"),
    }
}
