//! Files of messages are fetched from their platforms before the messages may start. A file that
//! cannot be had is told in the thread, and its message runs without it.

use std::{collections::HashSet, io, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use mayfly_domain::{
    AttachmentLimits, BlobHash, MessageId, RemoteFile,
    chat::{Body, CallError, Platform},
};
use tokio::io::AsyncReadExt as _;

use crate::{
    bell::Bell,
    blobs::{BlobError, Blobs},
    db::{Db, DbError, remote::Wanted},
    observe,
    outbox::Platforms,
    queue::Lanes,
    supervise::Supervisor,
};

/// Longest wait between two looks for wanted files.
const POLL: Duration = Duration::from_secs(2);
/// Files fetched at once.
const AT_ONCE: usize = 16;
/// Of them, files of one message: one that is slow leaves room for the others.
const OF_ONE: i64 = 4;
/// Tries of one file: a platform may be down for some minutes.
const TRIES: u32 = 9;
/// Between two looks for room.
const NO_ROOM: Duration = Duration::from_secs(10);
/// Longest time without a byte.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes read at once.
const CHUNK: usize = 64 * 1024;

/// A message, and a file's place in it.
type Place = (MessageId, i64);

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct Fetcher {
    /// The truth.
    pub db: Db,
    /// Where content goes.
    pub blobs: Blobs,
    /// Where it comes from.
    pub platforms: Platforms,
    /// What fits.
    pub limits: AttachmentLimits,
    /// Told when a message has all its files.
    pub lanes: Lanes,
    /// Rung when something is owed.
    pub bell: Bell,
}

/// Why a file is not here.
enum Missing {
    /// It may come yet.
    Yet(String, Option<Duration>),
    /// It never will; a sentence.
    Never(String),
    /// There is no room for it here: no fault of the file, and no try.
    NoRoom(String),
}

impl Fetcher {
    /// Fetches until the process comes to rest.
    pub async fn serve(self, supervisor: Supervisor) -> Result<(), DbError> {
        let stopping = supervisor.stopping();
        let mut busy: HashSet<Place> = HashSet::new();
        let mut fetching: FuturesUnordered<BoxFuture<'static, Place>> = FuturesUnordered::new();
        while !stopping.is_cancelled() {
            let rung = self.bell.next();
            // Those that are being fetched come first, since they are still wanted.
            let wanted = self.db.wanted_files(AT_ONCE as i64 * 2, OF_ONE).await;
            let wanted = wanted.unwrap_or_else(|error| {
                tracing::error!(error = observe::chain(&error), "wanted files not readable");
                Vec::new()
            });
            for file in wanted {
                let place = (file.message, file.position);
                if busy.len() < AT_ONCE && busy.insert(place) {
                    fetching.push(self.begun(file, &supervisor));
                }
            }
            tokio::select! {
                () = stopping.cancelled() => {}
                Some(place) = fetching.next() => { busy.remove(&place); }
                () = rung => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
        Ok(())
    }

    /// A task of its own: between two polls it may hold a connection that the next look needs.
    fn begun(&self, file: Wanted, supervisor: &Supervisor) -> BoxFuture<'static, Place> {
        let place = (file.message, file.position);
        let (fetcher, stopping) = (self.clone(), supervisor.stopping());
        let task = supervisor.task("fetch", async move {
            stopping.run_until_cancelled(fetcher.one(file)).await;
        });
        Box::pin(async move {
            if let Err(panic) = task.await {
                tracing::error!(message = %place.0, %panic, "fetching a file failed");
                // Looked at again, and not in a hurry.
                tokio::time::sleep(POLL).await;
            }
            place
        })
    }

    async fn one(self, wanted: Wanted) {
        let fetched = self.fetch(&wanted).await;
        let noted = match fetched {
            Ok((blob, size)) => self.db.file_is_here(&wanted, &blob, size).await,
            Err(Missing::Yet(why, after)) if wanted.attempts + 1 < TRIES => {
                tracing::info!(message = %wanted.message, error = why, "a file is tried again");
                let pause = after.unwrap_or(Duration::from_secs(1 << wanted.attempts));
                let next_at = self.db.now() + pause.as_millis() as i64;
                self.db.file_waits(&wanted, &why, next_at).await
            }
            Err(Missing::NoRoom(why)) => {
                tracing::warn!(message = %wanted.message, error = why, "a file waits for room");
                let next_at = self.db.now() + NO_ROOM.as_millis() as i64;
                self.db.file_has_no_room(&wanted, &why, next_at).await
            }
            Err(Missing::Yet(why, _) | Missing::Never(why)) => {
                tracing::warn!(message = %wanted.message, error = why, "a file is left out");
                let told = format!(
                    "The file \"{}\" could not be fetched, the message runs without it: {why}.",
                    wanted.file.name
                );
                self.db.file_is_missing(&wanted, &why, &told).await
            }
        };
        match noted {
            Ok(Some(agent)) => self.lanes.offer(agent, Duration::ZERO).await,
            Ok(None) => {}
            Err(error) => {
                tracing::error!(message = %wanted.message, error = observe::chain(&error), "a file is not noted");
                // Looked at again.
                tokio::time::sleep(POLL).await;
            }
        }
        self.bell.ring();
    }

    async fn fetch(&self, wanted: &Wanted) -> Result<(BlobHash, u64), Missing> {
        let file = &wanted.file;
        let platform = wanted.thread.platform.as_str();
        let Some(platform) = self.platforms.get(platform) else {
            let told = format!("the configuration has no platform \"{platform}\"");
            return Err(Missing::Never(told));
        };
        let fits = |size| {
            let checked = self.limits.check_file(&file.name, size);
            checked.map_err(|error| Missing::Never(error.to_string()))
        };
        self.limits
            .check_count(wanted.before as usize + 1)
            .map_err(|error| Missing::Never(error.to_string()))?;
        fits(file.size.unwrap_or_default())?;
        let mut body = begin(platform.as_ref(), file).await?;
        let mut blob = self.blobs.begin().await.map_err(here)?;
        let mut chunk = Vec::with_capacity(CHUNK);
        loop {
            chunk.clear();
            let read = tokio::time::timeout(SILENCE, body.read_buf(&mut chunk)).await;
            let read = read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            if read.map_err(|error| yet(&error))? == 0 {
                break;
            }
            blob.push(&chunk).await.map_err(here)?;
            fits(blob.size())?;
        }
        if wanted.bytes_before + blob.size() > self.limits.message_mib << 20 {
            let most = self.limits.message_mib;
            let told = format!("the message's files have more than {most} MiB together");
            return Err(Missing::Never(told));
        }
        blob.finish().await.map_err(here)
    }
}

async fn begin(platform: &dyn Platform, file: &RemoteFile) -> Result<Body, Missing> {
    let body = tokio::time::timeout(platform.patience(), platform.fetch(file)).await;
    let body = body.unwrap_or_else(|_| Err(CallError::Unknown("no answer in time".to_owned())));
    body.map_err(|error| match error {
        CallError::Refused(why) | CallError::Gone(why) => Missing::Never(why),
        CallError::Limited { reason, after } => Missing::Yet(reason, Some(after)),
        other => Missing::Yet(other.to_string(), None),
    })
}

fn here(error: BlobError) -> Missing {
    match error.is_full() || error.is_away() {
        true => Missing::NoRoom(observe::chain(&error)),
        false => yet(&error),
    }
}

fn yet(error: &dyn std::error::Error) -> Missing {
    Missing::Yet(observe::chain(error), None)
}
