//! `waiting = "merge"`: which messages that wait go into one tick.

use mayfly_domain::{MAX_TEXT, MessageId};

use super::{NOT_ALLOWED, Worker};
use crate::{
    agent::profile::{Profile, Waiting},
    db::{DbError, messages::Message, together::Together},
    tick::received,
};

/// Most messages of one tick.
const MOST: i64 = 50;

impl Worker {
    /// What may go with the lane's next message: all that waits behind it in its conversation, up to
    /// one that has to wait longer, wants another image, or does not fit. Those whose authors may not
    /// speak any more are taken back.
    pub(super) async fn together(
        &self,
        first: &Message,
        profile: &Profile,
    ) -> Result<Together, DbError> {
        let db = &self.tools.db;
        let mut found = Together {
            first: first.id,
            others: Vec::new(),
        };
        if profile.waiting == Waiting::Each {
            return Ok(found);
        }
        let mut text = first.text.len();
        for message in db.waiting_behind(first, MOST - 1).await? {
            text += message.text.len();
            let ready = db.until(message.claimable_at) == 0
                && !db.waits_for_files(message.id).await?
                && message.sandbox == first.sandbox
                && text <= MAX_TEXT;
            if !ready {
                break;
            }
            if !self.may_speak(&message).await? {
                db.withdraw(&message, NOT_ALLOWED).await?;
                self.bell.ring();
                continue;
            }
            let taken = [first.id].into_iter().chain(found.others.iter().copied());
            if !self.fit(taken.chain([message.id]), profile).await? {
                break;
            }
            found.others.push(message.id);
        }
        Ok(found)
    }

    /// Files that came since messages were merged into one may be too large, or too many for one
    /// tick: the first message whose files do not fit beside the ones before, and what comes after
    /// it, wait for a tick of their own again.
    pub(super) async fn part(&self, first: &Message, profile: &Profile) -> Result<(), DbError> {
        let db = &self.tools.db;
        let mut taken = vec![first.id];
        for message in db.merged_into(first.id).await? {
            taken.push(message.id);
            if !self.fit(taken.iter().copied(), profile).await? {
                db.part_from(first.id, &message).await?;
                self.bell.ring();
                break;
            }
        }
        Ok(())
    }

    /// Whether the files of all these have room in one tick.
    async fn fit(
        &self,
        messages: impl Iterator<Item = MessageId>,
        profile: &Profile,
    ) -> Result<bool, DbError> {
        let messages: Vec<_> = messages.collect();
        let files = self.tools.db.attachments_of(&messages).await?;
        let files: Vec<_> = files.into_iter().map(|(_, file)| file).collect();
        Ok(received::fits(&files, &profile.limits).is_ok())
    }

    /// Rights may have been taken since messages were merged into one that has to run again.
    pub(super) async fn judge_merged(&self, first: &Message) -> Result<(), DbError> {
        for message in self.tools.db.merged_into(first.id).await? {
            if !self.may_speak(&message).await? {
                self.tools.db.withdraw_merged(&message, NOT_ALLOWED).await?;
                self.bell.ring();
            }
        }
        Ok(())
    }
}
