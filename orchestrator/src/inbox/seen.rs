//! Whoever wrote to an agent sees at once that it was received. A courtesy: what fails is not tried
//! again.

use std::convert::Infallible;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use mayfly_domain::{PostId, chat::Sign};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{outbox::Platforms, supervise::Supervisor};

/// Signs shown at once.
const AT_ONCE: usize = 8;

/// Signs until the process comes to rest.
pub(super) async fn serve(
    mut posts: UnboundedReceiver<PostId>,
    platforms: Platforms,
    supervisor: Supervisor,
) -> Result<(), Infallible> {
    let stopping = supervisor.stopping();
    let mut signing = FuturesUnordered::new();
    loop {
        tokio::select! {
            () = stopping.cancelled() => return Ok(()),
            Some(()) = signing.next() => {}
            Some(post) = posts.recv(), if signing.len() < AT_ONCE => {
                signing.push(sign(&platforms, post, Sign::Seen));
            }
            else => {
                stopping.cancelled().await;
                return Ok(());
            }
        }
    }
}

/// One attempt.
async fn sign(platforms: &Platforms, post: PostId, sign: Sign) {
    let Some(platform) = platforms.get(post.channel.platform.as_str()) else {
        return;
    };
    let signed = tokio::time::timeout(platform.patience(), platform.sign(&post, sign)).await;
    match signed {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(post = post.id, %error, "no sign"),
        Err(_) => tracing::debug!(post = post.id, "no sign in time"),
    }
}
