//! One part of a delivery at a time; each function is one step that may be the last before a crash.

use std::time::Duration;

use futures_util::FutureExt as _;
use mayfly_domain::{
    PostId, ReplyFile,
    chat::{Body, CallError, Content, FileOut, NewPost, Staged},
};
use tokio_util::io::StreamReader;

use super::{
    call::{Caller, NoResult},
    freeze, progress,
    write::{NotYet, Writer},
};
use crate::{
    db::{
        deliveries::Owed,
        parts::{Part, Stage},
    },
    faults, observe,
};

/// How often its post may be removed by others, since a person last asked for it, before the reply
/// is given up.
const LOST: i64 = 3;
const DOTS: &str = "…";
const MIB: u64 = 1 << 20;

/// A delivery that is being written.
pub(super) struct Work<'a> {
    writer: &'a Writer,
    caller: &'a Caller,
    owed: &'a Owed,
    /// What the message began with.
    answers: Option<PostId>,
}

impl<'a> Work<'a> {
    /// The delivery is rendered when this returns.
    pub(super) async fn begin(
        writer: &'a Writer,
        caller: &'a Caller,
        owed: &'a Owed,
    ) -> Result<Self, NotYet> {
        let answers = writer.step(owed, || writer.db.post_of(owed.message).boxed());
        let work = Work {
            writer,
            caller,
            owed,
            answers: answers.await?,
        };
        if work.parts().await?.is_empty() {
            let platform = caller.platform.as_ref();
            let age = writer.db.now() - owed.created_at;
            let parts = freeze::parts(platform, &writer.blobs, owed, age).await;
            let parts = parts.map_err(NotYet::Blob)?;
            let after = writer.db.now() - progress::TOLD;
            let standing = writer.step(owed, || writer.db.standing(owed.id, after).boxed());
            let standing = standing.await?;
            let freeze = || {
                let frozen = writer.db.freeze_parts(owed.id, &parts, standing.as_ref());
                frozen.boxed()
            };
            writer.step(owed, freeze).await?;
        }
        Ok(work)
    }

    pub(super) async fn parts(&self) -> Result<Vec<Part>, NotYet> {
        let (writer, id) = (self.writer, self.owed.id);
        writer.step(self.owed, || writer.db.parts(id).boxed()).await
    }

    /// Makes its post, with nothing in it yet.
    pub(super) async fn place(&self, part: &Part) -> Result<(), NotYet> {
        let (writer, owed) = (self.writer, self.owed);
        if part.lost - part.forgiven > LOST {
            let told = "its posts are removed as soon as they are made".to_owned();
            return Err(NotYet::Call(CallError::Refused(told)));
        }
        let post = NewPost {
            thread: owed.thread.clone(),
            token: part.token(),
            content: self.caller.platform.line(DOTS, &[]),
            answers: self.answers.clone(),
            unknown_since: part.asked_at,
        };
        writer
            .step(owed, || writer.db.part_asked(part).boxed())
            .await?;
        let made = self
            .caller
            .call(|platform| Box::pin(async move { platform.post(&post).await }));
        let made = made.await;
        self.forget_what_was_not_done(part, &made).await?;
        let post = made?;
        writer
            .step(owed, || {
                writer.db.part_placed(part, &owed.thread, &post).boxed()
            })
            .await
    }

    /// Its post says what it should.
    pub(super) async fn fill(&self, part: &Part, content: &Content) -> Result<(), NotYet> {
        let (writer, owed) = (self.writer, self.owed);
        let Some(post) = part.post.clone() else {
            return Err(NotYet::Again(Duration::ZERO));
        };
        let (thread, content) = (owed.thread.clone(), content.clone());
        let edited = self.caller.call(|platform| {
            Box::pin(async move { platform.edit(&thread, &post, &content).await })
        });
        match edited.await {
            Ok(()) => {}
            Err(NoResult::Failed(CallError::Gone(_))) => {
                writer
                    .step(owed, || writer.db.part_lost(part).boxed())
                    .await?;
                return Err(NotYet::Again(Duration::ZERO));
            }
            Err(error @ NoResult::Failed(CallError::Unknown(_))) => {
                writer
                    .step(owed, || writer.db.part_unsure(part).boxed())
                    .await?;
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        }
        // An earlier edit that is still on its way would stand over this one.
        let patience = self.caller.platform.patience();
        if let Some(left) = part
            .unsure_at
            .and_then(|at| left(writer.db.now() - at, patience))
        {
            return Err(NotYet::Again(left));
        }
        writer
            .step(owed, || writer.db.part_sent(part).boxed())
            .await
    }

    /// Its file is shown; one that cannot be leaves a reason, and one that may be is a question.
    pub(super) async fn send(&self, part: &Part, file: &ReplyFile) -> Result<(), NotYet> {
        let (writer, owed) = (self.writer, self.owed);
        let most = self.caller.platform.max_file();
        if file.size > most {
            let told = format!(
                "The file \"{}\" has {} MiB; this platform takes at most {}.",
                file.name,
                file.size.div_ceil(MIB),
                most / MIB
            );
            return self.park(part, &told).await;
        }
        let patience = self.caller.platform.file_patience(file.size);
        if let Some(left) = part
            .asked_at
            .and_then(|at| left(writer.db.now() - at, patience))
        {
            return Err(NotYet::Again(left));
        }
        let asked_before = part.stage == Stage::Asked;
        match self.stage_and_post(part, file).await {
            Err(NotYet::Call(CallError::Refused(reason))) => {
                self.park_unsent(part, file, &reason).await
            }
            Err(NotYet::Blob(error)) if error.is_lost() && !asked_before => {
                tracing::error!(delivery = %owed.id, file = %file.blob, error = observe::chain(&error), "a file is lost");
                self.park_unsent(part, file, "its content is lost").await
            }
            // A second copy would be worse than asking a person, and none can be made of what is lost.
            Err(error) if asked_before && error.leaves_doubt() => {
                let doubtful = || writer.db.part_doubtful(part).boxed();
                writer.step(owed, doubtful).await
            }
            other => other,
        }
    }

    async fn stage_and_post(&self, part: &Part, file: &ReplyFile) -> Result<(), NotYet> {
        let (writer, owed) = (self.writer, self.owed);
        let out = FileOut {
            thread: owed.thread.clone(),
            token: part.token(),
            name: file.name.clone(),
            size: file.size,
            answers: self.answers.clone(),
            unknown_since: part.asked_at,
        };
        let staged = match &part.staged {
            Some(name) => Staged::Kept(name.clone()),
            None => self.stage(part, file, out.clone()).await?,
        };
        writer
            .step(owed, || writer.db.part_asked(part).boxed())
            .await?;
        let patience = self.caller.platform.file_patience(file.size);
        let shown = self.caller.call_within(patience, |platform| {
            Box::pin(async move { platform.post_file(&out, staged).await })
        });
        let shown = shown.await;
        faults::point("deliver.file");
        self.forget_what_was_not_done(part, &shown).await?;
        let post = shown?;
        writer
            .step(owed, || {
                writer.db.part_placed(part, &owed.thread, &post).boxed()
            })
            .await
    }

    async fn stage(&self, part: &Part, file: &ReplyFile, out: FileOut) -> Result<Staged, NotYet> {
        let (writer, owed) = (self.writer, self.owed);
        let content = writer.blobs.read(&file.blob).await.map_err(NotYet::Blob)?;
        let body: Body = Box::pin(StreamReader::new(content.content()));
        let patience = self.caller.platform.file_patience(file.size);
        let staged = self.caller.call_within(patience, |platform| {
            Box::pin(async move { platform.stage_file(&out, body).await })
        });
        let staged = staged.await?;
        if let Staged::Kept(name) = &staged {
            writer
                .step(owed, || writer.db.part_staged(part, name).boxed())
                .await?;
        }
        Ok(staged)
    }

    async fn park_unsent(&self, part: &Part, file: &ReplyFile, why: &str) -> Result<(), NotYet> {
        let told = format!("The file \"{}\" could not be sent: {why}.", file.name);
        self.park(part, &told).await
    }

    async fn park(&self, part: &Part, told: &str) -> Result<(), NotYet> {
        let (writer, owed) = (self.writer, self.owed);
        writer
            .step(owed, || writer.db.part_parked(part, told).boxed())
            .await
    }

    /// Only what may have been done has to be looked for by whoever tries next.
    async fn forget_what_was_not_done<T>(
        &self,
        part: &Part,
        result: &Result<T, NoResult>,
    ) -> Result<(), NotYet> {
        let (writer, owed) = (self.writer, self.owed);
        let certain = !matches!(
            result,
            Ok(_) | Err(NoResult::Rest | NoResult::Failed(CallError::Unknown(_)))
        );
        // What an earlier call may have done is as unknown as before.
        if certain && part.stage != Stage::Asked {
            writer
                .step(owed, || writer.db.part_not_asked(part).boxed())
                .await?;
        }
        Ok(())
    }
}

/// How long a call made so long ago may still be on its way; none if it cannot be.
fn left(age_ms: i64, patience: Duration) -> Option<Duration> {
    let age = Duration::from_millis(age_ms.max(0).unsigned_abs());
    patience.checked_sub(age).filter(|left| !left.is_zero())
}
