//! What people are shown beside the conversation: that their post was received, and that a pairing
//! code let nobody in. A courtesy: what fails is not tried again.

use std::{
    collections::HashMap,
    convert::Infallible,
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use mayfly_domain::{
    PostId, ThreadKey,
    chat::{CallError, NewPost, Platform, Sign},
};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{outbox::Platforms, supervise::Supervisor};

/// Calls at once.
const AT_ONCE: usize = 8;
/// One person is told once in this time that they are not let in,
const ONCE_IN: Duration = Duration::from_secs(10 * 60);
/// and so many people are: a crowd of strangers does not use up what the platform lets us say.
const STRANGERS: usize = 30;
/// The same whether a code is open, was, or never was.
const NOT_LET_IN: &str = "That lets nobody in. Whoever runs this bot can make a code that is good once, for ten minutes.";

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Courtesy {
    /// A post became part of a message.
    Seen(PostId),
    /// A person tried a code, in a direct conversation, and may not speak.
    NotLetIn {
        /// The conversation.
        thread: ThreadKey,
        /// The platform's id of the person.
        person: String,
    },
}

/// Shows until the process comes to rest.
pub(super) async fn serve(
    mut courtesies: UnboundedReceiver<Courtesy>,
    platforms: Platforms,
    supervisor: Supervisor,
) -> Result<(), Infallible> {
    let stopping = supervisor.stopping();
    let mut showing = FuturesUnordered::new();
    let mut told = Told::default();
    loop {
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            Some(()) = showing.next() => {}
            Some(courtesy) = courtesies.recv(), if showing.len() < AT_ONCE => {
                showing.extend(show(&platforms, courtesy, &mut told));
            }
            else => {
                stopping.cancelled().await;
                return Ok(());
            }
        }
    }
}

fn show<'a>(
    platforms: &'a Platforms,
    courtesy: Courtesy,
    told: &mut Told,
) -> Option<BoxFuture<'a, ()>> {
    match courtesy {
        Courtesy::Seen(post) => {
            let platform = platforms.get(post.channel.platform.as_str())?;
            let signed = async move { platform.sign(&post, Sign::Seen).await };
            Some(once(platform.as_ref(), signed).boxed())
        }
        Courtesy::NotLetIn { thread, person } => {
            let platform = platforms.get(thread.platform.as_str())?;
            if !told.may(&thread.platform, &person, Instant::now()) {
                return None;
            }
            let post = NewPost {
                token: format!("not let in/{}", uuid::Uuid::new_v4()),
                content: platform.line(NOT_LET_IN, &[]),
                thread,
                answers: None,
                unknown_since: None,
            };
            let posted = async move { platform.post(&post).await.map(drop) };
            Some(once(platform.as_ref(), posted).boxed())
        }
    }
}

/// One attempt.
async fn once(platform: &dyn Platform, call: impl Future<Output = Result<(), CallError>>) {
    match tokio::time::timeout(platform.patience(), call).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(platform = platform.name(), %error, "not shown"),
        Err(_) => tracing::debug!(platform = platform.name(), "not shown in time"),
    }
}

/// Who was told lately that a code let nobody in.
#[derive(Default)]
struct Told(HashMap<(String, String), Instant>);

impl Told {
    fn may(&mut self, platform: &str, person: &str, now: Instant) -> bool {
        self.0.retain(|_, at| now.duration_since(*at) < ONCE_IN);
        let key = (platform.to_owned(), person.to_owned());
        if self.0.contains_key(&key) || self.0.len() >= STRANGERS {
            return false;
        }
        self.0.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_told_once_in_ten_minutes_and_a_crowd_not_at_all() {
        let (mut told, now) = (Told::default(), Instant::now());
        assert!(told.may("telegram", "7", now));
        assert!(!told.may("telegram", "7", now + ONCE_IN - Duration::from_secs(1)));
        assert!(told.may("slack", "7", now));
        let crowd = (0..1000).filter(|n| told.may("telegram", &format!("c{n}"), now));
        assert_eq!(crowd.count(), STRANGERS - 2);
        assert!(told.may("telegram", "7", now + ONCE_IN));
        assert!(told.0.len() < STRANGERS);
    }
}
