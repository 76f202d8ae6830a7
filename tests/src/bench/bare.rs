//! The engine's own cycle, without Mayfly: create, start, wait, remove.
//!
//! The container is hardened exactly as a sandbox: its settings are taken from a living one, less
//! what Mayfly mounts. It runs `true` as the image's user.

use std::time::Duration;

use bollard::{
    Docker,
    errors::Error,
    models::{ContainerCreateBody, HealthConfig, HostConfig},
    query_parameters::{
        CreateContainerOptionsBuilder, InspectContainerOptions, RemoveContainerOptionsBuilder,
        StartContainerOptions, WaitContainerOptionsBuilder,
    },
};
use futures_util::StreamExt as _;
use mayfly_orchestrator::clock;

use super::points::ms;

/// The agent's, where the image names no user.
const USER: &str = "1000:1000";

/// See the module.
#[derive(Debug)]
pub struct Bare {
    client: Docker,
    body: ContainerCreateBody,
    prefix: String,
    count: u32,
}

/// Milliseconds of one cycle.
#[derive(Debug, Clone, Copy)]
pub struct Cycle {
    /// The request to create.
    pub create: f64,
    /// The request to start.
    pub start: f64,
    /// Until its end is known.
    pub wait: f64,
    /// The request to remove.
    pub remove: f64,
}

impl Cycle {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.create + self.start + self.wait + self.remove
    }
}

impl Bare {
    /// Like the living sandbox of this name; `prefix` begins the names of what is made.
    pub async fn like(sandbox: &str, prefix: String) -> Result<Bare, Error> {
        let client = Docker::connect_with_host("unix:///var/run/docker.sock")?;
        let client = client.negotiate_version().await?;
        let seen = client
            .inspect_container(sandbox, None::<InspectContainerOptions>)
            .await?;
        let image = seen.image.unwrap_or_default();
        let config = client
            .inspect_image(&image)
            .await?
            .config
            .unwrap_or_default();
        let body = ContainerCreateBody {
            image: Some(image),
            entrypoint: Some(vec!["true".to_owned()]),
            user: config
                .user
                .filter(|user| !user.is_empty())
                .or(Some(USER.to_owned())),
            healthcheck: Some(HealthConfig {
                test: Some(vec!["NONE".to_owned()]),
                ..HealthConfig::default()
            }),
            attach_stdin: Some(false),
            attach_stdout: Some(false),
            attach_stderr: Some(false),
            host_config: Some(HostConfig {
                mounts: None,
                binds: None,
                ..seen.host_config.unwrap_or_default()
            }),
            ..ContainerCreateBody::default()
        };
        Ok(Bare {
            client,
            body,
            prefix,
            count: 0,
        })
    }

    /// One cycle.
    pub async fn cycle(&mut self) -> Result<Cycle, Error> {
        self.count += 1;
        let name = format!("{}bare-{}", self.prefix, self.count);
        let mut last = clock::boot_time();
        let mut lap = || {
            let now = clock::boot_time();
            ms(now - std::mem::replace(&mut last, now))
        };
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        self.client
            .create_container(Some(options), self.body.clone())
            .await?;
        let create = lap();
        let started = self
            .client
            .start_container(&name, None::<StartContainerOptions>)
            .await;
        let start = lap();
        let ended = match started {
            Ok(()) => self.end_of(&name).await,
            Err(error) => Err(error),
        };
        let wait = lap();
        let options = RemoveContainerOptionsBuilder::new()
            .v(true)
            .force(ended.is_err())
            .build();
        self.client.remove_container(&name, Some(options)).await?;
        ended?;
        Ok(Cycle {
            create,
            start,
            wait,
            remove: lap(),
        })
    }

    async fn end_of(&self, name: &str) -> Result<(), Error> {
        let options = WaitContainerOptionsBuilder::new()
            .condition("not-running")
            .build();
        let mut ends = self.client.wait_container(name, Some(options));
        let end = tokio::time::timeout(Duration::from_secs(60), ends.next()).await;
        match end.map_err(|_| Error::RequestTimeoutError)? {
            Some(end) => end.map(drop),
            None => Err(Error::RequestTimeoutError),
        }
    }
}
