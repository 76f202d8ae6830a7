//! Reactions in place of marks.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use mayfly_domain::{
    PostId,
    chat::{CallError, Sign},
};
use serde_json::json;

use super::{
    Slack,
    words::{code, told},
};

/// So many posts' marks are remembered.
const REMEMBERED: usize = 500;

/// Which mark a post has, as far as it is remembered.
#[derive(Default)]
pub(super) struct Signs(Mutex<VecDeque<(PostId, Sign)>>);

impl Signs {
    /// Marks that may stand on a post and are to go.
    fn before(&self, post: &PostId, sign: Sign) -> Vec<Sign> {
        let signs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = signs.iter().find(|(of, _)| of == post);
        let all = [Sign::Seen, Sign::Answered, Sign::Failed];
        match known {
            Some((_, known)) => vec![*known],
            // A post that was not marked since our start is most often a new one.
            None if sign == Sign::Seen => Vec::new(),
            None => all.to_vec(),
        }
        .into_iter()
        .filter(|old| *old != sign)
        .collect()
    }

    fn set(&self, post: &PostId, sign: Sign) {
        let mut signs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        signs.retain(|(of, _)| of != post);
        signs.push_back((post.clone(), sign));
        while signs.len() > REMEMBERED {
            signs.pop_front();
        }
    }
}

fn emoji(sign: Sign) -> &'static str {
    match sign {
        Sign::Seen => "eyes",
        Sign::Answered => "white_check_mark",
        Sign::Failed => "warning",
    }
}

impl Slack {
    pub(super) async fn mark(&self, post: &PostId, sign: Sign) -> Result<(), CallError> {
        self.react("reactions.add", post, sign, "already_reacted")
            .await?;
        for old in self.signs.before(post, sign) {
            self.react("reactions.remove", post, old, "no_reaction")
                .await?;
        }
        self.signs.set(post, sign);
        Ok(())
    }

    async fn react(
        &self,
        method: &str,
        post: &PostId,
        sign: Sign,
        done: &str,
    ) -> Result<(), CallError> {
        let body = json!({
            "channel": post.channel.channel, "timestamp": post.id, "name": emoji(sign),
        });
        match self.api.write(method, "", &body).await {
            Ok(_) => Ok(()),
            Err(failure) if code(&failure) == Some(done) => Ok(()),
            Err(failure) => Err(told(failure)),
        }
    }
}
