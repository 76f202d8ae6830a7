//! The rows of one agent's history: read for an export, with its layers pinned, and written by an
//! import in one transaction.

use mayfly_domain::{
    AgentId, BaseId, DeliveryId, InstallationId, LayerId, MessageId, SandboxRef, SnapshotId,
    ThreadId, ThreadKey, TickId,
};
use sqlx::{Row as _, any::AnyRow};

use super::{
    Db, DbError, Tx,
    depot::{NewLayer, insert_layer},
    parse, parse_opt,
    pins::Pin,
    query,
};
use crate::{
    sandbox::Names,
    snapshot::{
        LayerSize, Slot,
        oci::{History, ReplyRow},
    },
};

/// One state on the way to the one that is exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortableState {
    /// Its id.
    pub id: SnapshotId,
    /// The tick that made it.
    pub tick: Option<TickId>,
    /// What it adds; the first one's may stand for all before it.
    pub layer: Option<LayerId>,
    /// The agent program's session.
    pub session: Option<String>,
    /// Unix ms.
    pub created_at: i64,
}

/// States as they can be read, for as long as this lives.
#[derive(Debug)]
pub struct PinnedStates {
    /// Oldest first.
    pub states: Vec<PortableState>,
    /// Keeps their layers.
    pub pin: Pin,
}

/// The rows of an import.
pub struct NewHistory<'a> {
    /// Checked, with the ids that the rows get.
    pub history: &'a History,
    /// Of each state with a layer, in order.
    pub layers: &'a [(LayerId, LayerSize)],
    /// What they lie on.
    pub base: &'a BaseId,
    /// Whether the base is new too.
    pub new_base: bool,
    /// The worker that has the layers.
    pub holder: &'a str,
    /// Whose the agent's own thread is.
    pub installation: InstallationId,
}

/// A message that has its outcome.
#[derive(Debug, Clone, Copy)]
pub struct Settled {
    /// Which.
    pub id: MessageId,
    /// When it got it, unix ms.
    pub at: Option<i64>,
    /// The one whose tick it is part of: most often itself.
    pub first: MessageId,
}

impl Db {
    /// The states up to one, and pins on their layers and base. Where layers of early states are
    /// not kept any more, the list begins with the merge that stands for them. None where there is
    /// no such merge.
    pub async fn pin_states(
        &self,
        base: &BaseId,
        last: Option<SnapshotId>,
    ) -> Result<Option<PinnedStates>, DbError> {
        let pin = self.new_pin();
        let mut tx = self.begin().await?;
        let rows = query(
            "WITH RECURSIVE chain (id, parent, depth) AS (
               SELECT id, parent, 0 FROM snapshots WHERE id = $1
               UNION ALL SELECT s.id, s.parent, c.depth + 1 FROM chain c
                 JOIN snapshots s ON s.id = c.parent
             ) SELECT s.id, s.tick, s.session, s.created_at, s.layer, own.id, whole.id
               FROM chain c JOIN snapshots s ON s.id = c.id
               LEFT JOIN layers own ON own.id = s.layer
               LEFT JOIN merges m ON m.snapshot = s.id
               LEFT JOIN layers whole ON whole.id = m.layer ORDER BY c.depth DESC",
        )
        .bind(last.map(|id| id.to_string()).unwrap_or_default())
        .fetch_all(&mut *tx)
        .await?;
        let chain = rows.iter().map(chained).collect::<Result<Vec<_>, _>>()?;
        let Some(states) = representable(chain) else {
            return Ok(None);
        };
        let layers = states.iter().filter_map(|state| state.layer.as_ref());
        let names = layers.map(LayerId::as_str).chain([base.as_str()]);
        let me = self.member();
        for (n, name) in names.enumerate() {
            query(
                "INSERT INTO pins (id, layer, reason, created_at, worker, epoch)
                 VALUES ($1, $2, 'export', $3, $4, $5)",
            )
            .bind(format!("{}.{n}", pin.id))
            .bind(name)
            .bind(self.now())
            .bind(&me.id)
            .bind(me.epoch)
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await?;
        Ok(Some(PinnedStates { states, pin }))
    }

    /// An agent's messages that have their outcome, in order. What was merged into one that has none
    /// yet stays with that one.
    pub async fn settled(&self, agent: AgentId) -> Result<Vec<Settled>, DbError> {
        let rows = query(
            "SELECT m.id, m.settled_at, f.id FROM messages m
             JOIN messages f ON f.id = COALESCE(m.merged_into, m.id)
             WHERE m.agent = $1 AND m.outcome IS NOT NULL AND f.outcome IS NOT NULL
             ORDER BY m.created_at, m.seq, m.id",
        )
        .bind(agent.to_string())
        .fetch_all(self.reader())
        .await?;
        let read = |row: &AnyRow| {
            let (id, first): (String, String) = (row.try_get(0)?, row.try_get(2)?);
            Ok(Settled {
                id: parse("messages", &id, "id", &id)?,
                at: row.try_get(1)?,
                first: parse("messages", &id, "merged_into", &first)?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// What a thread was told about a message, oldest first.
    pub async fn told(&self, message: MessageId) -> Result<Vec<ReplyRow>, DbError> {
        let rows = query(
            "SELECT tick, kind, text, created_at FROM deliveries
             WHERE message = $1 AND kind <> 'waiting' ORDER BY created_at, id",
        )
        .bind(message.to_string())
        .fetch_all(self.reader())
        .await?;
        let read = |row: &AnyRow| {
            let tick: Option<String> = row.try_get(0)?;
            let key = message.to_string();
            Ok(ReplyRow {
                message,
                tick: parse_opt("deliveries", &key, "tick", tick.as_deref())?,
                answer: row.try_get::<String, _>(1)? == "answer",
                text: row.try_get(2)?,
                created_at: row.try_get(3)?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Whether an id of the history is in use here, by a living or a removed agent.
    pub async fn knows_any_of(&self, history: &History) -> Result<bool, DbError> {
        let snapshots = history.snapshots.iter().map(|row| row.id.to_string());
        let messages = history.messages.iter().map(|row| row.id.to_string());
        let ticks = history.ticks.iter().map(|row| row.id.to_string());
        let ids = [("agents", history.agent.id.to_string())].into_iter();
        let ids = ids
            .chain(snapshots.map(|id| ("snapshots", id)))
            .chain(messages.map(|id| ("messages", id)))
            .chain(ticks.map(|id| ("ticks", id)));
        for (table, id) in ids {
            let sql = format!("SELECT count(*) FROM {table} WHERE id = $1");
            let row = query(sqlx::AssertSqlSafe(sql))
                .bind(id)
                .fetch_one(self.reader())
                .await?;
            if row.try_get::<i64, _>(0)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the agent and its history whole or not at all. Legal when all files are in place.
    /// After an error it may be there all the same, if the answer was lost.
    pub async fn insert_history(&self, new: &NewHistory<'_>) -> Result<(), DbError> {
        let (history, now) = (new.history, self.now());
        let mut tx = self.begin().await?;
        if new.new_base {
            insert_base(&mut tx, new).await?;
        }
        let mut layers = new.layers.iter();
        let mut parent: Option<SnapshotId> = None;
        for row in &history.snapshots {
            let layer = row.layer.and_then(|_| layers.next());
            if let Some((layer, size)) = layer {
                let layer = NewLayer {
                    id: layer,
                    size: *size,
                    holder: Some(new.holder),
                    parcel: None,
                };
                insert_layer(&mut tx, &layer, row.created_at).await?;
            }
            query(
                "INSERT INTO snapshots (id, agent, base, parent, tick, layer, session, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            )
            .bind(row.id.to_string())
            .bind(history.agent.id.to_string())
            .bind(new.base.as_str())
            .bind(parent.map(|id| id.to_string()))
            .bind(row.tick.map(|id| id.to_string()))
            .bind(layer.map(|(layer, _)| layer.as_str()))
            .bind(&row.session)
            // Retention counts from here: an old history must not expire on its arrival.
            .bind(now)
            .execute(&mut *tx)
            .await?;
            parent = Some(row.id);
        }
        let thread = insert_agent(&mut tx, new, parent).await?;
        insert_messages(&mut tx, history, thread).await?;
        insert_ticks(&mut tx, new).await?;
        insert_replies(&mut tx, history, thread).await?;
        crate::faults::point("import.inside");
        tx.commit().await?;
        Ok(crate::faults::lose_answer("import.answer")?)
    }
}

/// A state, and whether its own layer and a merge are there.
struct Chained {
    state: PortableState,
    own: bool,
    merged: Option<LayerId>,
}

fn chained(row: &AnyRow) -> Result<Chained, DbError> {
    let key: String = row.try_get(0)?;
    let text = |column: usize| -> Result<Option<String>, DbError> { Ok(row.try_get(column)?) };
    Ok(Chained {
        state: PortableState {
            id: parse("snapshots", &key, "id", &key)?,
            tick: parse_opt("snapshots", &key, "tick", text(1)?.as_deref())?,
            session: text(2)?,
            created_at: row.try_get(3)?,
            layer: parse_opt("snapshots", &key, "layer", text(4)?.as_deref())?,
        },
        own: text(4)?.is_none() || text(5)?.is_some(),
        merged: parse_opt("merges", &key, "layer", text(6)?.as_deref())?,
    })
}

fn representable(mut chain: Vec<Chained>) -> Option<Vec<PortableState>> {
    if let Some(lost) = chain.iter().rposition(|link| !link.own) {
        let merged = chain[lost..]
            .iter()
            .position(|link| link.merged.is_some())?;
        chain.drain(..lost + merged);
        let first = chain.first_mut()?;
        first.state.layer = first.merged.take();
    }
    Some(chain.into_iter().map(|link| link.state).collect())
}

/// One image has one base that new agents get; another one of the same image has a name nobody
/// asks for.
async fn insert_base(tx: &mut Tx, new: &NewHistory<'_>) -> Result<(), DbError> {
    let agent = &new.history.agent;
    let taken = query("SELECT count(*) FROM bases WHERE image = $1")
        .bind(&agent.image)
        .fetch_one(&mut **tx)
        .await?
        .try_get::<i64, _>(0)?;
    let image = match taken {
        0 => agent.image.clone(),
        _ => format!("{}#{}", agent.image, new.base),
    };
    query(
        "INSERT INTO bases (id, image, uid, gid, notes, created_at) VALUES ($1, $2, $3, $4, '[]', $5)",
    )
    .bind(new.base.as_str())
    .bind(image)
    .bind(i64::from(agent.uid))
    .bind(i64::from(agent.gid))
    .bind(tx.now())
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn insert_agent(
    tx: &mut Tx,
    new: &NewHistory<'_>,
    head: Option<SnapshotId>,
) -> Result<ThreadId, DbError> {
    let row = &new.history.agent;
    query(
        "INSERT INTO agents (id, profile, sandbox, image, base, head, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(row.id.to_string())
    .bind(&row.profile)
    .bind(row.sandbox.as_ref().map(SandboxRef::to_string))
    .bind(&row.image)
    .bind(new.base.as_str())
    .bind(head.map(|id| id.to_string()))
    .bind(row.created_at)
    .execute(&mut **tx)
    .await?;
    let thread = ThreadId::new();
    query("INSERT INTO threads (id, key, agent, next_seq) VALUES ($1, $2, $3, $4)")
        .bind(thread.to_string())
        .bind(ThreadKey::local(new.installation, row.id).to_string())
        .bind(row.id.to_string())
        .bind(new.history.messages.len() as i64)
        .execute(&mut **tx)
        .await?;
    Ok(thread)
}

async fn insert_messages(tx: &mut Tx, history: &History, thread: ThreadId) -> Result<(), DbError> {
    for (at, row) in history.messages.iter().enumerate() {
        query(
            "INSERT INTO messages (id, agent, thread, seq, author_id, author_name, text, sandbox,
             created_at, claimable_at, attempts, outcome, reason, settled_at, merged_into, words_of)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11, $12, $13, $14, $15)",
        )
        .bind(row.id.to_string())
        .bind(history.agent.id.to_string())
        .bind(thread.to_string())
        .bind(at as i64 + 1)
        .bind(&row.author.id)
        .bind(&row.author.name)
        .bind(&row.text)
        .bind(row.sandbox.as_ref().map(SandboxRef::to_string))
        .bind(row.created_at)
        .bind(i64::from(row.attempts))
        .bind(row.outcome.as_str())
        .bind(&row.reason)
        .bind(row.settled_at)
        .bind(row.merged_into.map(|id| id.to_string()))
        .bind(
            row.words_of
                .as_ref()
                .map(|author| serde_json::json!(author).to_string()),
        )
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
}

/// Their sandboxes were another installation's: nothing of them is to be removed here.
async fn insert_ticks(tx: &mut Tx, new: &NewHistory<'_>) -> Result<(), DbError> {
    let slots = Slot::defaults();
    for row in &new.history.ticks {
        let layer = LayerId::new();
        let names = Names::of(new.installation, layer.as_str(), &slots);
        let ended = row.ended_at.unwrap_or(row.started_at);
        query(
            "INSERT INTO ticks (id, agent, message, retry_of, worker, epoch, generation, phase,
             outcome, changes, notice, exit_code, effects, before, after, image, layer, names,
             removed_at, notes, phase_ms, output_bytes, layer_bytes, layer_inodes, started_at,
             ended_at) VALUES ($1, $2, $3, $4, 'imported', 0, 0, $5, $6, $7, $8, $9, $10, $11, $12,
             $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $16)",
        )
        .bind(row.id.to_string())
        .bind(new.history.agent.id.to_string())
        .bind(row.message.to_string())
        .bind(row.retry_of.map(|id| id.to_string()))
        .bind(&row.phase)
        .bind(row.outcome.as_str())
        .bind(row.changes.map(|changes| changes.as_str()))
        .bind(&row.notice)
        .bind(row.exit_code)
        .bind(&row.effects)
        .bind(row.before.map(|id| id.to_string()))
        .bind(row.after.map(|id| id.to_string()))
        .bind(&row.image)
        .bind(layer.as_str())
        .bind(serde_json::to_string(&names).expect("names are plain"))
        .bind(ended)
        .bind(serde_json::json!(row.notes).to_string())
        .bind(serde_json::json!(row.phase_ms).to_string())
        .bind(row.output_bytes)
        .bind(row.layer_bytes)
        .bind(row.layer_inodes)
        .bind(row.started_at)
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
}

/// They were told where they were owed; nothing is told again.
async fn insert_replies(tx: &mut Tx, history: &History, thread: ThreadId) -> Result<(), DbError> {
    for row in &history.replies {
        query(
            "INSERT INTO deliveries (id, thread, message, tick, kind, text, state, created_at,
             sent_at) VALUES ($1, $2, $3, $4, $5, $6, 'sent', $7, $7)",
        )
        .bind(DeliveryId::new().to_string())
        .bind(thread.to_string())
        .bind(row.message.to_string())
        .bind(row.tick.map(|id| id.to_string()))
        .bind(if row.answer { "answer" } else { "notice" })
        .bind(&row.text)
        .bind(row.created_at)
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(own: &[bool], merged: &[bool]) -> Vec<Chained> {
        let link = |(own, merged): (&bool, &bool)| Chained {
            state: PortableState {
                id: SnapshotId::new(),
                tick: None,
                layer: Some(LayerId::new()),
                session: None,
                created_at: 0,
            },
            own: *own,
            merged: merged.then(LayerId::new),
        };
        own.iter().zip(merged).map(link).collect()
    }

    #[test]
    fn a_merge_stands_only_for_states_whose_own_layers_are_gone() {
        let count = |own: &[bool], merged: &[bool]| {
            let states = representable(chain(own, merged));
            states.map(|states| states.len())
        };
        assert_eq!(count(&[true, true, true], &[false, true, false]), Some(3));
        assert_eq!(count(&[false, true, true], &[false, true, false]), Some(2));
        assert_eq!(count(&[true, false, true], &[true, false, true]), Some(1));
        assert_eq!(count(&[true, false, true], &[true, false, false]), None);
        assert_eq!(count(&[], &[]), Some(0));
    }
}
