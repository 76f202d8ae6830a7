//! Commands given in threads, and buttons: each is done once.

use mayfly_domain::{
    AgentId, Author, DeliveryId, MessageId, Pressed, Reply, ThreadId, ThreadKey, chat::Button,
};
use serde::{Deserialize, Serialize};
use sqlx::{AnyConnection, Row as _, any::AnyRow};

use super::{
    Db, DbError, Tx,
    agents::{Agent, insert_agent},
    deliveries::{NewDelivery, owe},
    messages::Lane,
    parse,
    parts::keep_ours,
    query,
};
use crate::orders::{grammar::Order, told};

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// A command.
    Order(Order),
    /// A command that was not understood; what to say.
    Mistake(String),
    /// A button was pressed: a command, and the press to be answered.
    Pressed {
        /// What the button stands for; none where somebody else was faster.
        order: Option<Order>,
        /// The press.
        pressed: Box<Pressed>,
        /// What the button said.
        label: String,
    },
    /// A button was pressed that is forgotten; the press to be answered.
    Stale(Box<Pressed>),
}

impl Ask {
    /// The same ask, for something else.
    pub fn instead(&self, order: Order) -> Ask {
        match self {
            Ask::Pressed { pressed, label, .. } => Ask::Pressed {
                order: Some(order),
                pressed: pressed.clone(),
                label: label.clone(),
            },
            Ask::Order(_) | Ask::Mistake(_) | Ask::Stale(_) => Ask::Order(order),
        }
    }

    /// Whether it ends something, which must not wait.
    pub fn is_stop(&self) -> bool {
        let order = match self {
            Ask::Order(order) => Some(order),
            Ask::Pressed { order, .. } => order.as_ref(),
            Ask::Mistake(_) | Ask::Stale(_) => None,
        };
        matches!(order, Some(Order::Stop { .. }))
    }
}

/// One that is to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenOrder {
    /// Its id.
    pub id: MessageId,
    /// Where it was given.
    pub thread: ThreadKey,
    /// Whose thread that is.
    pub agent: AgentId,
    /// Who gave it.
    pub author: Author,
    /// What.
    pub ask: Ask,
    /// An earlier start began it, and nobody knows how far it came.
    pub interrupted: bool,
}

/// What is said in answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Said {
    /// Text and files.
    pub reply: Reply,
    /// Buttons below it, with what each stands for.
    pub buttons: Vec<(Button, Order)>,
    /// A conversation that was opened; it is a fork's from the same moment on.
    pub binds: Option<Binding>,
}

/// A fork's conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// The fork.
    pub fork: AgentId,
    /// Its conversation from now on.
    pub thread: ThreadKey,
    /// The post whose answers belong to it, where that is how it goes on.
    pub root: Option<String>,
}

/// A command takes its place beside the lane, in the transaction that applies its post.
pub(super) async fn give(
    tx: &mut Tx,
    lane: &Lane,
    author: &Author,
    ask: &Ask,
) -> Result<MessageId, DbError> {
    insert(tx, &lane.thread.to_string(), author, ask).await
}

async fn insert(
    tx: &mut Tx,
    thread: &str,
    author: &Author,
    ask: &Ask,
) -> Result<MessageId, DbError> {
    let id = MessageId::new();
    query(
        "INSERT INTO orders (id, thread, author, command, created_at) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(id.to_string())
    .bind(thread)
    .bind(serde_json::to_string(author).expect("authors are plain"))
    .bind(serde_json::to_string(ask).expect("commands are plain"))
    .bind(tx.now())
    .execute(&mut **tx)
    .await?;
    Ok(id)
}

/// A press becomes a command, if it is the first on its question, and is answered if its button is
/// forgotten. False if it is none of ours.
pub(super) async fn press(tx: &mut Tx, pressed: &Pressed) -> Result<bool, DbError> {
    let row = query("SELECT thread, action, question FROM buttons WHERE id = $1")
        .bind(&pressed.button)
        .fetch_optional(&mut **tx)
        .await?;
    let Some(row) = row else {
        return stale(tx, pressed).await;
    };
    let (thread, action, question): (String, String, String) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let (order, label): (Order, String) =
        serde_json::from_str(&action).map_err(|_| DbError::Row {
            table: "buttons",
            id: pressed.button.clone(),
            column: "action",
        })?;
    let first = query(
        "UPDATE buttons SET pressed_at = $2, pressed_by = $3 WHERE id = $1 AND NOT EXISTS
           (SELECT 1 FROM buttons o WHERE o.question = $4 AND o.pressed_at IS NOT NULL)",
    )
    .bind(&pressed.button)
    .bind(tx.now())
    .bind(&pressed.by.name)
    .bind(&question)
    .execute(&mut **tx)
    .await?
    .rows_affected();
    let ask = Ask::Pressed {
        order: (first > 0).then_some(order),
        pressed: Box::new(pressed.clone()),
        label,
    };
    insert(tx, &thread, &pressed.by, &ask).await?;
    Ok(true)
}

async fn stale(tx: &mut Tx, pressed: &Pressed) -> Result<bool, DbError> {
    let thread = query("SELECT id FROM threads WHERE key = $1")
        .bind(pressed.thread.to_string())
        .fetch_optional(&mut **tx)
        .await?;
    let Some(thread) = thread else {
        return Ok(false);
    };
    let thread: String = thread.try_get(0)?;
    let ask = Ask::Stale(Box::new(pressed.clone()));
    insert(tx, &thread, &pressed.by, &ask).await?;
    Ok(true)
}

impl Db {
    /// Commands that are to be done, oldest first.
    pub async fn open_orders(&self) -> Result<Vec<OpenOrder>, DbError> {
        let rows = query(
            "SELECT o.id, t.key, t.agent, o.author, o.command, o.state FROM orders o
             JOIN threads t ON t.id = o.thread WHERE o.state != 'done' ORDER BY o.created_at, o.id",
        )
        .fetch_all(self.reader())
        .await?;
        let mut open = Vec::new();
        for row in &rows {
            match open_order(row) {
                Ok(order) => open.push(order),
                // One that cannot be read holds up no other.
                Err(error @ DbError::Row { .. }) => {
                    tracing::error!(
                        error = crate::observe::chain(&error),
                        "command not readable"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(open)
    }

    /// Somebody pressed it who may not: it is as it was.
    pub async fn unpress(&self, button: &str) -> Result<(), DbError> {
        query("UPDATE buttons SET pressed_at = NULL, pressed_by = NULL WHERE id = $1")
            .bind(button)
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// It is about to be done.
    pub async fn order_begun(&self, id: MessageId) -> Result<(), DbError> {
        query("UPDATE orders SET state = 'begun' WHERE id = $1 AND state = 'new'")
            .bind(id.to_string())
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// It is half done, and this is what is left of it.
    pub async fn order_becomes(&self, id: MessageId, ask: &Ask) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        becomes(&mut tx, id, ask).await?;
        tx.commit().await?;
        Ok(())
    }

    /// It is done, and this is owed for it in its thread.
    pub async fn order_done(&self, id: MessageId, said: Option<&Said>) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        let row = query(
            "UPDATE orders SET state = 'done' WHERE id = $1 AND state != 'done' RETURNING thread",
        )
        .bind(id.to_string())
        .fetch_optional(&mut *tx)
        .await?;
        if let (Some(row), Some(said)) = (row, said) {
            let thread: String = row.try_get(0)?;
            let thread = parse("orders", &id.to_string(), "thread", &thread)?;
            match &said.binds {
                Some(bound) if !bind(&mut tx, bound).await? => {
                    say(&mut tx, thread, id, &told::taken(bound.fork)).await?;
                }
                _ => say(&mut tx, thread, id, said).await?,
            }
        }
        tx.commit().await?;
        Ok(())
    }

    /// A conversation gets a fresh agent; the old one keeps its own, by command line. False while
    /// something of the old one waits or runs.
    pub async fn renew_thread(
        &self,
        thread: &ThreadKey,
        old: &ThreadKey,
        fresh: &Agent,
    ) -> Result<bool, DbError> {
        let mut tx = self.begin().await?;
        let moved = query(
            "UPDATE threads SET key = $2 WHERE key = $1 AND NOT EXISTS
               (SELECT 1 FROM messages m WHERE m.thread = threads.id AND m.outcome IS NULL)
             RETURNING id",
        )
        .bind(thread.to_string())
        .bind(old.to_string())
        .fetch_optional(&mut *tx)
        .await?;
        let Some(moved) = moved else { return Ok(false) };
        let moved: String = moved.try_get(0)?;
        insert_agent(&mut tx, fresh, thread).await?;
        // What is said about it is said where people are.
        for table in ["orders", "buttons", "deliveries"] {
            let open = match table {
                "orders" => "AND state != 'done'",
                "deliveries" => "AND state = 'owed'",
                _ => "",
            };
            let sql = format!(
                "UPDATE {table} SET thread = (SELECT id FROM threads WHERE key = $1)
                 WHERE thread = $2 {open}"
            );
            query(sqlx::AssertSqlSafe(sql))
                .bind(thread.to_string())
                .bind(&moved)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// Who opened a thread: the author of its first message.
    pub async fn opener(&self, agent: AgentId) -> Result<Option<String>, DbError> {
        let row = query("SELECT author_id FROM messages WHERE agent = $1 ORDER BY seq, id LIMIT 1")
            .bind(agent.to_string())
            .fetch_optional(self.reader())
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// The newest parked message of an agent.
    pub async fn newest_parked(&self, agent: AgentId) -> Result<Option<MessageId>, DbError> {
        let row = query(
            "SELECT id FROM messages WHERE agent = $1 AND outcome = 'parked'
             ORDER BY seq DESC LIMIT 1",
        )
        .bind(agent.to_string())
        .fetch_optional(self.reader())
        .await?;
        let Some(row) = row else { return Ok(None) };
        let id: String = row.try_get(0)?;
        Ok(Some(parse("messages", &id, "id", &id)?))
    }
}

/// What is left of a command that is half done.
pub(super) async fn becomes(
    tx: &mut AnyConnection,
    id: MessageId,
    ask: &Ask,
) -> Result<(), DbError> {
    query("UPDATE orders SET command = $2 WHERE id = $1")
        .bind(id.to_string())
        .bind(serde_json::to_string(ask).expect("commands are plain"))
        .execute(tx)
        .await?;
    Ok(())
}

/// False if another agent's conversation is there.
async fn bind(tx: &mut Tx, bound: &Binding) -> Result<bool, DbError> {
    let moved = query(
        "UPDATE threads SET key = $2 WHERE agent = $1
         AND NOT EXISTS (SELECT 1 FROM threads o WHERE o.key = $2 AND o.agent != $1)",
    )
    .bind(bound.fork.to_string())
    .bind(bound.thread.to_string())
    .execute(&mut **tx)
    .await?
    .rows_affected();
    if let (1.., Some(root)) = (moved, &bound.root) {
        keep_ours(tx, &bound.thread, root).await?;
    }
    Ok(moved > 0)
}

/// This is owed to a thread, for a message or a command.
pub(super) async fn say(
    tx: &mut Tx,
    thread: ThreadId,
    of: MessageId,
    said: &Said,
) -> Result<(), DbError> {
    let mut delivery = NewDelivery::remark(thread, of, said.reply.text.clone());
    delivery.reply.files.clone_from(&said.reply.files);
    owe(tx, &delivery).await?;
    add_buttons(tx, &delivery, &said.buttons).await
}

/// Below a delivery that is owed since a moment ago.
pub(super) async fn add_buttons(
    tx: &mut Tx,
    delivery: &NewDelivery,
    buttons: &[(Button, Order)],
) -> Result<(), DbError> {
    if buttons.is_empty() {
        return Ok(());
    }
    let shown: Vec<&Button> = buttons.iter().map(|(button, _)| button).collect();
    query("UPDATE deliveries SET buttons = $2 WHERE id = $1")
        .bind(delivery.id.to_string())
        .bind(serde_json::to_string(&shown).expect("buttons are plain"))
        .execute(&mut **tx)
        .await?;
    for (button, stands_for) in buttons {
        add_button(tx, button, stands_for, delivery.thread, delivery.id).await?;
    }
    Ok(())
}

async fn add_button(
    tx: &mut Tx,
    button: &Button,
    order: &Order,
    thread: ThreadId,
    question: DeliveryId,
) -> Result<(), DbError> {
    let action = serde_json::to_string(&(order, &button.label)).expect("commands are plain");
    query(
        "INSERT INTO buttons (id, thread, action, question, created_at, blob)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING",
    )
    .bind(&button.id)
    .bind(thread.to_string())
    .bind(action)
    .bind(question.to_string())
    .bind(tx.now())
    .bind(order.file().map(|file| file.blob.as_str()))
    .execute(&mut **tx)
    .await?;
    Ok(())
}

fn open_order(row: &AnyRow) -> Result<OpenOrder, DbError> {
    let text = |at: usize| row.try_get::<String, _>(at);
    let id = text(0)?;
    let broken = |column| DbError::Row {
        table: "orders",
        id: id.clone(),
        column,
    };
    Ok(OpenOrder {
        thread: parse("threads", &id, "key", &text(1)?)?,
        agent: parse("threads", &id, "agent", &text(2)?)?,
        author: serde_json::from_str(&text(3)?).map_err(|_| broken("author"))?,
        ask: serde_json::from_str(&text(4)?).map_err(|_| broken("command"))?,
        interrupted: text(5)? == "begun",
        id: parse("orders", &id, "id", &id)?,
    })
}
