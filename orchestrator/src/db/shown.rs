//! What faces show, with all that stands beside it: a page is one statement, however long it is.

use std::collections::HashMap;

use mayfly_domain::{AgentId, Attachment, MessageId, Reply, ReplyFile, TickId};
use sqlx::{Row as _, any::AnyRow};

use super::{
    Db, DbError,
    agents::{self, Agent},
    history::HISTORY,
    messages::{self, Message, WIDTH},
    parse, parse_opt, query,
    ticks::{self, Tick},
};

/// An agent and what its view tells beside its row.
#[derive(Debug, Clone)]
pub struct ShownAgent {
    /// Its row.
    pub agent: Agent,
    /// The tick whose state its head is.
    pub head_tick: Option<TickId>,
    /// Its open tick.
    pub running: Option<TickId>,
    /// Layers of its head, without the base.
    pub layers: i64,
    /// Open messages without an open tick.
    pub waiting: i64,
    /// Parked messages.
    pub parked: i64,
    /// Ticks so far.
    pub ticks: i64,
    /// Bytes of its base, once that was measured.
    pub base_bytes: Option<u64>,
    /// Something of it could not be delivered.
    pub undelivered: bool,
}

/// A tick and what its view tells beside its row.
#[derive(Debug, Clone)]
pub struct ShownTick {
    /// Its row.
    pub tick: Tick,
    /// How its message begins, without leading white space.
    pub begins: String,
    /// Its state cannot be gone back to; means nothing where it left none.
    pub expired: bool,
    /// Its agent's head is its state, or stands on it.
    pub in_head: bool,
}

/// A message and what became of it.
#[derive(Debug, Clone)]
pub struct ShownMessage {
    /// Its row.
    pub message: Message,
    /// Its newest tick.
    pub tick: Option<TickId>,
    /// What came with it.
    pub files: Vec<Attachment>,
    /// What the thread was told: its newest answer or notice.
    pub reply: Option<Reply>,
    /// Why something of it could not be delivered.
    pub undelivered: Option<String>,
}

/// Sorts after every id.
const LAST: &str = "~";
/// What `ltrim` takes away.
const WHITE: &str = " \t\r\n";

impl Db {
    /// An agent that is not removed.
    pub async fn shown_agent(&self, id: AgentId) -> Result<Option<ShownAgent>, DbError> {
        let shown = self.shown_agents("id = $1", &id.to_string(), 1).await?;
        Ok(shown.into_iter().next())
    }

    /// Agents that are not removed, newest first: those older than `after`.
    pub async fn agents_page(
        &self,
        after: Option<AgentId>,
        most: u32,
    ) -> Result<Vec<ShownAgent>, DbError> {
        let after = after.map_or_else(|| LAST.to_owned(), |id| id.to_string());
        self.shown_agents("id < $1", &after, most).await
    }

    async fn shown_agents(
        &self,
        which: &str,
        bound: &str,
        most: u32,
    ) -> Result<Vec<ShownAgent>, DbError> {
        let columns = agents::COLUMNS;
        let sql = format!(
            "WITH RECURSIVE page AS (
               SELECT {columns} FROM agents WHERE removed_at IS NULL AND {which}
               ORDER BY id DESC LIMIT $2
             ), chain (agent, parent, layer, merged) AS (
               SELECT p.id, s.parent, s.layer, m.layer FROM page p
                 JOIN snapshots s ON s.id = p.head LEFT JOIN merges m ON m.snapshot = s.id
               UNION ALL
               SELECT c.agent, s.parent, s.layer, m.layer FROM chain c
                 JOIN snapshots s ON s.id = c.parent LEFT JOIN merges m ON m.snapshot = s.id
                WHERE c.merged IS NULL
             ), lengths (agent, layers) AS (
               SELECT agent, count(*) FROM chain
                WHERE merged IS NOT NULL OR layer IS NOT NULL GROUP BY agent
             )
             SELECT p.*, h.tick,
               (SELECT t.id FROM ticks t WHERE t.agent = p.id AND t.outcome IS NULL),
               COALESCE(l.layers, 0),
               (SELECT count(*) FROM messages m WHERE m.agent = p.id AND m.outcome IS NULL
                 AND NOT EXISTS (SELECT 1 FROM ticks t WHERE t.message = m.id AND t.outcome IS NULL)),
               (SELECT count(*) FROM messages m WHERE m.agent = p.id AND m.outcome = 'parked'),
               (SELECT count(*) FROM ticks t WHERE t.agent = p.id),
               (SELECT b.bytes FROM bases b WHERE b.id = p.base),
               CASE WHEN EXISTS (SELECT 1 FROM threads t JOIN deliveries d ON d.thread = t.id
                 WHERE t.agent = p.id AND d.state = 'parked') THEN 1 ELSE 0 END
             FROM page p LEFT JOIN snapshots h ON h.id = p.head
             LEFT JOIN lengths l ON l.agent = p.id ORDER BY p.id DESC"
        );
        let rows = query(sqlx::AssertSqlSafe(sql))
            .bind(bound)
            .bind(i64::from(most))
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(shown_agent).collect()
    }

    /// One tick, also of an agent that is removed.
    pub async fn shown_tick(&self, id: TickId) -> Result<Option<ShownTick>, DbError> {
        let of = "(SELECT agent FROM ticks WHERE id = $1)";
        let id = id.to_string();
        let shown = self.shown_ticks(of, "", "t.id = $1", &[&id]).await?;
        Ok(shown.into_iter().next())
    }

    /// An agent's ticks, oldest first: those younger than `after`.
    pub async fn ticks_page(
        &self,
        agent: AgentId,
        after: Option<TickId>,
        most: u32,
    ) -> Result<Vec<ShownTick>, DbError> {
        let after = after.map(|id| id.to_string()).unwrap_or_default();
        let which = "t.agent = $1 AND t.id > $3 ORDER BY t.id LIMIT CAST($4 AS BIGINT)";
        let (agent, most) = (agent.to_string(), most.to_string());
        self.shown_ticks("$1", "", which, &[&agent, &after, &most])
            .await
    }

    /// Ticks of an agent, newest first: those older than `before`.
    pub async fn newest_ticks(
        &self,
        agent: AgentId,
        before: Option<TickId>,
        most: u32,
    ) -> Result<Vec<ShownTick>, DbError> {
        let before = before.map_or_else(|| LAST.to_owned(), |id| id.to_string());
        let which = "t.agent = $1 AND t.id < $3 ORDER BY t.id DESC LIMIT CAST($4 AS BIGINT)";
        let (agent, most) = (agent.to_string(), most.to_string());
        self.shown_ticks("$1", "", which, &[&agent, &before, &most])
            .await
    }

    /// An agent's own ticks and those that made the states it stands on or ever stood on.
    pub async fn ticks_of_history(&self, agent: AgentId) -> Result<Vec<ShownTick>, DbError> {
        let tables = format!(", {HISTORY}");
        let which = "t.id IN (SELECT s.tick FROM history h JOIN snapshots s ON s.id = h.id
               UNION SELECT id FROM ticks WHERE agent = $1) ORDER BY t.id";
        self.shown_ticks("$1", &tables, which, &[&agent.to_string()])
            .await
    }

    /// Ticks as `which` says and their places below the head of `agent`; `tables` are further
    /// common tables. `$1` is the first of `bound`, `$3` and
    /// `$4` are the others.
    async fn shown_ticks(
        &self,
        agent: &str,
        tables: &str,
        which: &str,
        bound: &[&str],
    ) -> Result<Vec<ShownTick>, DbError> {
        let columns = ticks::COLUMNS;
        let sql = format!(
            "WITH RECURSIVE head (id, parent) AS (
               SELECT s.id, s.parent FROM agents a JOIN snapshots s ON s.id = a.head
                WHERE a.removed_at IS NULL AND a.id = {agent}
               UNION ALL SELECT s.id, s.parent FROM head h JOIN snapshots s ON s.id = h.parent
             ){tables}
             SELECT {columns}, substr(ltrim(m.text, $2), 1, 256),
               CASE WHEN s.id IS NULL OR s.expired_at IS NOT NULL THEN 1 ELSE 0 END,
               CASE WHEN t.after IN (SELECT id FROM head) THEN 1 ELSE 0 END
             FROM ticks t LEFT JOIN messages m ON m.id = t.message
             LEFT JOIN snapshots s ON s.id = t.after WHERE {which}"
        );
        let mut query = query(sqlx::AssertSqlSafe(sql)).bind(bound[0]).bind(WHITE);
        for more in &bound[1..] {
            query = query.bind(*more);
        }
        let rows = query.fetch_all(self.reader()).await?;
        rows.iter().map(shown_tick).collect()
    }

    /// One message.
    pub async fn shown_message(&self, id: MessageId) -> Result<Option<ShownMessage>, DbError> {
        let which = "m.id = $1 ORDER BY f.position";
        let shown = self.shown_messages(which, &[&id.to_string()]).await?;
        Ok(shown.into_iter().next())
    }

    /// Messages of an agent, newest first: those older than `before`.
    pub async fn newest_messages(
        &self,
        agent: AgentId,
        before: Option<MessageId>,
        most: u32,
    ) -> Result<Vec<ShownMessage>, DbError> {
        let before = before.map_or_else(|| LAST.to_owned(), |id| id.to_string());
        // Files make more rows of a message, so the page is cut before they come in.
        let which = "m.id IN (SELECT id FROM messages WHERE agent = $1 AND id < $2
               ORDER BY id DESC LIMIT CAST($3 AS BIGINT)) ORDER BY m.id DESC, f.position";
        let (agent, most) = (agent.to_string(), most.to_string());
        self.shown_messages(which, &[&agent, &before, &most]).await
    }

    /// Messages that wait for a person, or whose reply does, oldest first.
    pub async fn parked(&self) -> Result<Vec<ShownMessage>, DbError> {
        let which = "m.id IN (SELECT p.id FROM messages p WHERE p.outcome = 'parked'
               UNION SELECT u.message FROM deliveries u
               JOIN threads t ON t.id = u.thread JOIN agents a ON a.id = t.agent
               WHERE u.state = 'parked' AND a.removed_at IS NULL)
             ORDER BY m.created_at, m.id, f.position";
        self.shown_messages(which, &[]).await
    }

    async fn shown_messages(
        &self,
        which: &str,
        bound: &[&str],
    ) -> Result<Vec<ShownMessage>, DbError> {
        let columns = messages::COLUMNS;
        // One row per file; a reply without files has one row.
        let sql = format!(
            "SELECT {columns}, (SELECT max(t.id) FROM ticks t WHERE t.message = m.id),
               d.id, d.text, f.name, f.blob, f.size,
               (SELECT COALESCE(u.reason, '') FROM deliveries u WHERE u.message = m.id
                 AND u.state = 'parked' ORDER BY u.created_at DESC, u.id DESC LIMIT 1)
             FROM messages m
             LEFT JOIN deliveries d ON m.outcome IS NOT NULL AND d.id =
               (SELECT e.id FROM deliveries e WHERE e.message = m.id AND e.kind <> 'waiting'
                 ORDER BY e.created_at DESC, e.id DESC LIMIT 1)
             LEFT JOIN delivery_files f ON f.delivery = d.id
             WHERE {which}"
        );
        let mut query = query(sqlx::AssertSqlSafe(sql));
        for bound in bound {
            query = query.bind(*bound);
        }
        let rows = query.fetch_all(self.reader()).await?;
        let mut shown: Vec<ShownMessage> = Vec::new();
        for row in &rows {
            let message = messages::message(row)?;
            // Rows of one message stand together.
            if shown
                .last()
                .is_none_or(|last| last.message.id != message.id)
            {
                shown.push(shown_message(row, message)?);
            }
            if let Some(reply) = shown.last_mut().and_then(|last| last.reply.as_mut()) {
                reply.files.extend(file(row)?);
            }
        }
        let ids: Vec<MessageId> = shown.iter().map(|shown| shown.message.id).collect();
        let mut files: HashMap<MessageId, Vec<Attachment>> = HashMap::new();
        for (message, file) in self.attachments_of(&ids).await? {
            files.entry(message).or_default().push(file);
        }
        for shown in &mut shown {
            shown.files = files.remove(&shown.message.id).unwrap_or_default();
        }
        Ok(shown)
    }
}

fn shown_agent(row: &AnyRow) -> Result<ShownAgent, DbError> {
    let agent = agents::agent(row)?;
    let key = agent.id.to_string();
    let tick = |column: usize| -> Result<Option<TickId>, DbError> {
        let id: Option<String> = row.try_get(column)?;
        parse_opt("ticks", &key, "id", id.as_deref())
    };
    Ok(ShownAgent {
        head_tick: tick(8)?,
        running: tick(9)?,
        layers: row.try_get(10)?,
        waiting: row.try_get(11)?,
        parked: row.try_get(12)?,
        ticks: row.try_get(13)?,
        base_bytes: row
            .try_get::<Option<i64>, _>(14)?
            .map(|bytes| bytes.max(0) as u64),
        undelivered: row.try_get::<i64, _>(15)? != 0,
        agent,
    })
}

fn shown_tick(row: &AnyRow) -> Result<ShownTick, DbError> {
    Ok(ShownTick {
        tick: ticks::tick(row)?,
        begins: row.try_get::<Option<String>, _>(26)?.unwrap_or_default(),
        expired: row.try_get::<i64, _>(27)? != 0,
        in_head: row.try_get::<i64, _>(28)? != 0,
    })
}

fn shown_message(row: &AnyRow, message: Message) -> Result<ShownMessage, DbError> {
    let tick: Option<String> = row.try_get(WIDTH)?;
    let text: Option<String> = row.try_get(WIDTH + 2)?;
    Ok(ShownMessage {
        tick: parse_opt("messages", &message.id.to_string(), "tick", tick.as_deref())?,
        message,
        files: Vec::new(),
        reply: text.map(|text| Reply {
            text,
            files: Vec::new(),
        }),
        undelivered: row.try_get(WIDTH + 6)?,
    })
}

fn file(row: &AnyRow) -> Result<Option<ReplyFile>, DbError> {
    let (delivery, name): (Option<String>, Option<String>) =
        (row.try_get(WIDTH + 1)?, row.try_get(WIDTH + 3)?);
    let (Some(delivery), Some(name)) = (delivery, name) else {
        return Ok(None);
    };
    let blob: String = row.try_get(WIDTH + 4)?;
    Ok(Some(ReplyFile {
        name,
        blob: parse("delivery_files", &delivery, "blob", &blob)?,
        size: row.try_get::<i64, _>(WIDTH + 5)?.max(0) as u64,
    }))
}
