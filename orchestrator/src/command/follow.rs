//! A tick followed while it runs: its transcript line by line, then its end.

use std::time::Duration;

use mayfly_domain::TickId;
use tokio::time::Instant;

use super::{Commands, RequestError, internal};
use crate::{
    agent::transcript::{
        self, Line,
        tail::{Found, Tail},
    },
    view::TickView,
};

/// Between two looks into the transcript.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time between two looks at the tick's row, where no ring is heard.
const POLL: Duration = Duration::from_secs(1);

/// What a follower is told next.
#[derive(Debug)]
pub enum Told {
    /// New lines, at least one.
    Lines(Vec<Line>),
    /// The tick has ended; nothing follows.
    End(Box<TickView>),
}

/// See the module. Holds one piece of the transcript, however long it is.
pub struct Follow {
    commands: Commands,
    tick: TickId,
    tail: Option<Tail>,
    ended: bool,
    polled: Option<Instant>,
}

impl Commands {
    /// Follows a tick, also one that has ended, from the line after number `after` on.
    pub async fn follow(&self, tick: TickId, after: u64) -> Result<Follow, RequestError> {
        let agent = self.tick_row(tick).await?.agent;
        let path = transcript::path(&self.data_dir, agent, tick);
        Ok(Follow {
            commands: self.clone(),
            tick,
            tail: Some(Tail::new(path, after)),
            ended: false,
            polled: None,
        })
    }
}

impl Follow {
    /// Waits for what is next; not to be called again after [`Told::End`] or an error.
    pub async fn next(&mut self) -> Result<Told, RequestError> {
        loop {
            // The row first: a tick that has ended writes no more lines.
            if !self.ended && self.polled.is_none_or(|polled| polled.elapsed() >= POLL) {
                self.polled = Some(Instant::now());
                let row = self.commands.tick_row(self.tick).await?;
                self.ended = row.outcome.is_some();
            }
            let found = self.look().await?;
            if !found.lines.is_empty() {
                return Ok(Told::Lines(found.lines));
            }
            if !found.all {
                continue;
            }
            if self.ended {
                let view = self.commands.tick_alone(self.tick).await?;
                return Ok(Told::End(Box::new(view)));
            }
            if self.commands.bell.rings(LOOK).await {
                self.polled = None;
            }
        }
    }

    async fn look(&mut self) -> Result<Found, RequestError> {
        let Some(mut tail) = self.tail.take() else {
            return Err(RequestError::Internal("the transcript was lost".to_owned()));
        };
        let looked = tokio::task::spawn_blocking(move || (tail.look(), tail)).await;
        let (found, tail) = looked.map_err(|panic| internal(&panic))?;
        self.tail = Some(tail);
        found.map_err(|error| internal(&error))
    }
}
