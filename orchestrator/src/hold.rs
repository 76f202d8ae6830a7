//! What one process of an installation does at a time: speaking with a platform by one token, applying what it
//! says, answering. Whoever has the names in the database does it, until its worker's lease is over.
//!
//! The lease is counted from when its renewal was sent. Once it is stale nothing is sent any more, and that is
//! long before another process may take the names.

use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Lease,
    db::Db,
    observe,
    trouble::{Source, Trouble},
};

/// Between two looks whether the names are free, and whether the lease is fresh.
const POLL: Duration = Duration::from_millis(500);

/// The name under which one process does what is done for all platforms together.
pub const CHATS: &str = "chats";

/// What stands for a platform's token, which is not to be read from the database.
pub fn name_of(platform: &str, token: &str) -> String {
    let hash = hex::encode(Sha256::digest(token));
    format!("{platform}:{}", &hash[..16])
}

/// The right to send, as long as the worker's lease is fresh; always where there is one process.
#[derive(Debug, Clone, Default)]
pub struct Sending(Option<Lease>);

impl Sending {
    /// By this lease, where others may take over.
    pub fn new(lease: &Lease, db: &Db) -> Sending {
        Sending(db.is_shared().then(|| lease.clone()))
    }

    /// Whether it may be sent now.
    pub fn may(&self) -> bool {
        self.0.as_ref().is_none_or(Lease::fresh)
    }

    /// Waits until it may be sent.
    pub async fn allowed(&self) {
        while !self.may() {
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until it may not be sent any more.
    pub async fn over(&self) {
        while self.may() {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Waits until this process has all of the names, and says once who has them where it is told to whom. False
/// where it came to rest. Legal on a shared database.
pub async fn take(
    db: &Db,
    names: &[String],
    tell: Option<&Trouble>,
    stopping: &CancellationToken,
) -> bool {
    while !stopping.is_cancelled() {
        match db.hold(names).await {
            Ok(None) => {
                tell.inspect(|trouble| trouble.clear(Source::Hold));
                return true;
            }
            Ok(Some(worker)) => {
                if let Some(trouble) = tell {
                    let held = db.holds_of(&worker).await.unwrap_or_default();
                    trouble.raise(Source::Hold, told(&worker, names, &held));
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = observe::chain(&error),
                    "who speaks with the platforms is not known"
                );
            }
        }
        let _ = stopping.run_until_cancelled(tokio::time::sleep(POLL)).await;
    }
    false
}

/// Two with the same tokens are one and its stand-in; two with different ones are most likely not meant so.
fn told(worker: &str, wanted: &[String], held: &[String]) -> String {
    let waits = format!(
        "another mayfly (worker {worker}) speaks with the chat platforms: this one waits for its end and takes over then"
    );
    let platform = |name: &String| {
        name.split_once(':')
            .map(|(platform, _)| platform.to_owned())
    };
    let others: Vec<String> = wanted
        .iter()
        .filter(|name| !held.contains(name))
        .filter_map(platform)
        .collect();
    match others.is_empty() {
        true => waits,
        false => format!(
            "{waits}; until then nobody speaks by its token of {}, since one process speaks with all platforms of an \
             installation: give the tokens of all to each bot",
            others.join(" and ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_with_other_tokens_is_told_that_nobody_uses_them() {
        let [slack, telegram] = [name_of("slack", "one"), name_of("telegram", "two")];
        let held = [slack.clone(), CHATS.to_owned()];
        let same = told("w", &[slack.clone(), CHATS.to_owned()], &held);
        assert!(same.ends_with("takes over then"), "{same}");
        let other = told("w", &[slack, telegram, CHATS.to_owned()], &held);
        assert!(other.contains("by its token of telegram, since"), "{other}");
        assert!(other.contains("worker w"), "{other}");
    }
}
