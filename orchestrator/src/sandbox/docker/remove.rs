//! The one teardown. Its `Ok` is the proof that nothing can write to the slots: the engine said of
//! the container and of each slot's volume that it is gone, and it removes neither while mounted.

use std::time::Duration;

use bollard::{
    errors::Error,
    query_parameters::{RemoveContainerOptionsBuilder, RemoveVolumeOptions},
};
use futures_util::future::join_all;
use tokio::time::Instant;

use super::{Docker, connect::status, failed_io};
use crate::{
    faults,
    sandbox::{BackendError, Names, Removal},
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Longest wait for one answer: an engine that cannot end a container never gives one, and others are to be removed
/// too. It gives a process ten seconds to die.
const ANSWER: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", ANSWER.as_secs())]
struct NoAnswer;

impl Docker {
    pub(super) async fn tear_down(
        &self,
        names: &Names,
        patience: Duration,
    ) -> Result<Removal, BackendError> {
        let until = Instant::now() + patience;
        let mut removal = Removal::Whole;
        if !names.container.is_empty() {
            removal = self
                .until_gone(Thing::Container, &names.container, until)
                .await?;
            faults::point("remove.container");
        }
        let volumes = names.volumes.iter().map(async |volume| {
            let removal = self.until_gone(Thing::Volume, volume, until).await?;
            faults::point("remove.volume");
            Ok::<_, BackendError>(removal)
        });
        // Together, and each to its end: what one call left undone does not stop another.
        for gone in join_all(volumes).await {
            if gone? == Removal::SomeUnknown {
                removal = Removal::SomeUnknown;
            }
        }
        match std::fs::remove_dir_all(&names.sockets) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(failed_io(error, "remove", &names.sockets))
            }
            _ => Ok(removal),
        }
    }

    async fn until_gone(
        &self,
        thing: Thing,
        name: &str,
        until: Instant,
    ) -> Result<Removal, BackendError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.asked(thing, name).await {
                Ok(removal) => return Ok(removal),
                Err(error) => error,
            };
            if Instant::now() + pause > until {
                return Err(error);
            }
            tracing::debug!(
                name,
                error = &error as &dyn std::error::Error,
                "not gone yet"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn asked(&self, thing: Thing, name: &str) -> Result<Removal, BackendError> {
        let client = self.client().await?;
        match tokio::time::timeout(ANSWER, thing.remove(&client, name)).await {
            Ok(Ok(())) => Ok(Removal::Whole),
            Ok(Err(error)) if status(&error) == Some(404) => Ok(Removal::SomeUnknown),
            Ok(Err(error)) => Err(self.failed(error, thing.action(), name).await),
            Err(_) => Err(BackendError::Failed {
                action: thing.action(),
                name: name.to_owned(),
                source: Box::new(NoAnswer),
            }),
        }
    }
}

#[derive(Clone, Copy)]
enum Thing {
    Container,
    Volume,
}

impl Thing {
    fn action(self) -> &'static str {
        match self {
            Thing::Container => "remove container",
            Thing::Volume => "remove volume",
        }
    }

    async fn remove(self, client: &bollard::Docker, name: &str) -> Result<(), Error> {
        match self {
            Thing::Container => {
                // `v` takes the image's anonymous volumes along.
                let options = RemoveContainerOptionsBuilder::new().force(true).v(true);
                client.remove_container(name, Some(options.build())).await
            }
            Thing::Volume => {
                client
                    .remove_volume(name, None::<RemoveVolumeOptions>)
                    .await
            }
        }
    }
}
