//! What a delivery is made of, and how far each part is.

use mayfly_domain::{
    Channel, DeliveryId, MessageId, PostId, Posted, ReplyFile, ThreadKey, chat::Content,
};
use sqlx::{Row as _, any::AnyRow};

use super::{Db, DbError, Tx, query};

/// What a part shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Text in the platform's words.
    Text(Content),
    /// A file.
    File(ReplyFile),
}

impl What {
    fn kind(&self) -> &'static str {
        match self {
            What::Text(_) => "text",
            What::File(_) => "file",
        }
    }

    fn blob(&self) -> Option<&str> {
        match self {
            What::Text(_) => None,
            What::File(file) => Some(file.blob.as_str()),
        }
    }

    fn stored(&self) -> String {
        match self {
            What::Text(content) => content.0.clone(),
            What::File(file) => serde_json::to_string(file).expect("files are plain"),
        }
    }
}

/// How far a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has no post.
    Prepared,
    /// Its post was asked for, and may stand or not.
    Asked,
    /// Its post stands, with something else in it.
    Placed,
    /// It is what people see.
    Sent,
    /// It cannot be shown.
    Parked,
    /// Nobody can tell whether it is shown: a person is asked.
    Doubtful,
}

impl Stage {
    const ALL: [Stage; 6] = [
        Stage::Prepared,
        Stage::Asked,
        Stage::Placed,
        Stage::Sent,
        Stage::Parked,
        Stage::Doubtful,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Stage::Prepared => "prepared",
            Stage::Asked => "asked",
            Stage::Placed => "placed",
            Stage::Sent => "sent",
            Stage::Parked => "parked",
            Stage::Doubtful => "doubtful",
        }
    }
}

/// One part of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Of which delivery.
    pub delivery: DeliveryId,
    /// Its place in it.
    pub position: i64,
    /// What it shows.
    pub what: What,
    /// How far it is.
    pub stage: Stage,
    /// The platform's id of its post.
    pub post: Option<String>,
    /// How many posts of it were removed by others.
    pub lost: i64,
    /// How many of those were so before a person asked for it again.
    pub forgiven: i64,
    /// What the platform calls a file that it does not show yet.
    pub staged: Option<String>,
    /// When its post was first asked for, while that is [`Stage::Asked`].
    pub asked_at: Option<i64>,
    /// When the last edit was asked for whose end is not known.
    pub unsure_at: Option<i64>,
    /// Why it is parked.
    pub reason: Option<String>,
}

impl Part {
    /// The identity of its post, for the platform.
    pub fn token(&self) -> String {
        format!("{}/{}/{}", self.delivery, self.position, self.lost)
    }
}

/// A post that shows how far a message is, as a reply may take it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The platform's id of it.
    pub post: String,
    /// See [`Part::unsure_at`].
    pub unsure_at: Option<i64>,
}

/// What the third parameter of an update is.
enum Value<'a> {
    None,
    Now,
    Text(&'a str),
}

const COLUMNS: &str = "delivery, position, kind, content, state, post, lost, staged, asked_at, unsure_at, reason, forgiven";

impl Db {
    /// The parts of a delivery in their order; none before it was rendered.
    pub async fn parts(&self, delivery: DeliveryId) -> Result<Vec<Part>, DbError> {
        let sql = format!("SELECT {COLUMNS} FROM parts WHERE delivery = $1 ORDER BY position");
        let rows = query(sqlx::AssertSqlSafe(sql))
            .bind(delivery.to_string())
            .fetch_all(self.reader())
            .await?;
        let parts = rows.iter().map(|row| part(row, delivery));
        parts
            .map(|part| part.map_err(|error| named(error, delivery)))
            .collect()
    }

    /// A delivery is rendered, once. The first part takes over a post that stands.
    pub async fn freeze_parts(
        &self,
        delivery: DeliveryId,
        parts: &[What],
        standing: Option<&Standing>,
    ) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        for (position, what) in parts.iter().enumerate() {
            let taken = standing.filter(|_| position == 0 && matches!(what, What::Text(_)));
            let stage = match taken {
                Some(_) => Stage::Placed,
                None => Stage::Prepared,
            };
            query(
                "INSERT INTO parts (delivery, position, kind, content, blob, state, post, unsure_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (delivery, position) DO NOTHING",
            )
            .bind(delivery.to_string())
            .bind(position as i64)
            .bind(what.kind())
            .bind(what.stored())
            .bind(what.blob())
            .bind(stage.as_str())
            .bind(taken.map(|standing| standing.post.as_str()))
            .bind(taken.and_then(|standing| standing.unsure_at))
            .execute(&mut *tx)
            .await?;
        }
        if standing.is_some() {
            query(
                "DELETE FROM progress WHERE message = (SELECT message FROM deliveries WHERE id = $1)",
            )
            .bind(delivery.to_string())
            .execute(&mut *tx)
            .await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// Its post is about to be asked for.
    pub async fn part_asked(&self, part: &Part) -> Result<(), DbError> {
        self.update_part(
            part,
            "state = 'asked', asked_at = COALESCE(asked_at, $3)",
            Value::Now,
        )
        .await
    }

    /// Its post was certainly not made.
    pub async fn part_not_asked(&self, part: &Part) -> Result<(), DbError> {
        self.update_part(part, "state = 'prepared', asked_at = NULL", Value::None)
            .await
    }

    /// Its post stands; what answers it belongs to this thread.
    pub async fn part_placed(
        &self,
        part: &Part,
        thread: &ThreadKey,
        post: &str,
    ) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        let state = match part.what {
            What::Text(_) => Stage::Placed,
            What::File(_) => Stage::Sent,
        };
        query(
            "UPDATE parts SET state = $3, post = $4, asked_at = NULL, unsure_at = NULL
             WHERE delivery = $1 AND position = $2",
        )
        .bind(part.delivery.to_string())
        .bind(part.position)
        .bind(state.as_str())
        .bind(post)
        .execute(&mut *tx)
        .await?;
        keep_ours(&mut tx, thread, post).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Its post was removed by somebody else: it needs another.
    pub async fn part_lost(&self, part: &Part) -> Result<(), DbError> {
        self.update_part(
            part,
            "state = 'prepared', post = NULL, asked_at = NULL, unsure_at = NULL, lost = lost + 1",
            Value::None,
        )
        .await
    }

    /// The platform has its file under this name.
    pub async fn part_staged(&self, part: &Part, name: &str) -> Result<(), DbError> {
        self.update_part(part, "staged = $3", Value::Text(name))
            .await
    }

    /// An edit of its post may be done or not, or come yet.
    pub async fn part_unsure(&self, part: &Part) -> Result<(), DbError> {
        self.update_part(part, "unsure_at = $3", Value::Now).await
    }

    /// People see it.
    pub async fn part_sent(&self, part: &Part) -> Result<(), DbError> {
        self.update_part(part, "state = 'sent', unsure_at = NULL", Value::None)
            .await
    }

    /// It cannot be shown.
    pub async fn part_parked(&self, part: &Part, reason: &str) -> Result<(), DbError> {
        self.update_part(part, "state = 'parked', reason = $3", Value::Text(reason))
            .await
    }

    /// Nobody can tell whether it is shown.
    pub async fn part_doubtful(&self, part: &Part) -> Result<(), DbError> {
        self.update_part(part, "state = 'doubtful'", Value::None)
            .await
    }

    async fn update_part(&self, part: &Part, set: &str, value: Value<'_>) -> Result<(), DbError> {
        let sql = format!("UPDATE parts SET {set} WHERE delivery = $1 AND position = $2");
        let query = query(sqlx::AssertSqlSafe(sql))
            .bind(part.delivery.to_string())
            .bind(part.position);
        let query = match value {
            Value::None => query,
            Value::Now => query.bind(self.now()),
            Value::Text(text) => query.bind(text.to_owned()),
        };
        query.execute(self.writer()).await?;
        Ok(())
    }

    /// The post a message began with.
    pub async fn post_of(&self, message: MessageId) -> Result<Option<PostId>, DbError> {
        Ok(self.told_of(message).await?.map(|told| told.id))
    }

    /// What its platform told of the post a message began with.
    pub async fn told_of(&self, message: MessageId) -> Result<Option<Posted>, DbError> {
        let row = query(
            "SELECT told FROM posts WHERE message = $1 AND told IS NOT NULL
             ORDER BY created_at, id LIMIT 1",
        )
        .bind(message.to_string())
        .fetch_optional(self.reader())
        .await?;
        let Some(row) = row else { return Ok(None) };
        let told: String = row.try_get(0)?;
        Ok(serde_json::from_str(&told).ok())
    }

    /// A channel by the id it had when the configuration was written.
    pub async fn channel_began_as(&self, channel: &Channel) -> Result<Channel, DbError> {
        let mut reader = self.reader().acquire().await?;
        super::posts::began_as(&mut reader, channel).await
    }

    /// A chat has a new id: its threads and posts move with it.
    pub async fn move_channel(&self, from: &Channel, to: &Channel) -> Result<(), DbError> {
        let mut tx = self.begin().await?;
        super::posts::move_channel(&mut tx, from, to).await?;
        tx.commit().await?;
        Ok(())
    }
}

/// A value of the wrong kind, by the name of its column.
fn named(error: DbError, delivery: DeliveryId) -> DbError {
    let DbError::Sql(sqlx::Error::ColumnDecode { index, .. }) = &error else {
        return error;
    };
    let column = index
        .parse()
        .ok()
        .and_then(|at| COLUMNS.split(", ").nth(at));
    column.map_or(error, |column| DbError::Row {
        table: "parts",
        id: delivery.to_string(),
        column,
    })
}

fn part(row: &AnyRow, delivery: DeliveryId) -> Result<Part, DbError> {
    let id = delivery.to_string();
    let broken = |column| DbError::Row {
        table: "parts",
        id: id.clone(),
        column,
    };
    let (kind, content): (String, String) = (row.try_get(2)?, row.try_get(3)?);
    let what = match kind.as_str() {
        "text" => What::Text(Content(content)),
        "file" => What::File(serde_json::from_str(&content).map_err(|_| broken("content"))?),
        _ => return Err(broken("kind")),
    };
    let state: String = row.try_get(4)?;
    let stage = Stage::ALL.into_iter().find(|stage| stage.as_str() == state);
    Ok(Part {
        delivery,
        position: row.try_get(1)?,
        what,
        stage: stage.ok_or_else(|| broken("state"))?,
        post: row.try_get(5)?,
        lost: row.try_get(6)?,
        staged: row.try_get(7)?,
        asked_at: row.try_get(8)?,
        unsure_at: row.try_get(9)?,
        reason: row.try_get(10)?,
        forgiven: row.try_get(11)?,
    })
}

/// A post of ours, so that answers to it find their conversation.
pub(super) async fn keep_ours(tx: &mut Tx, thread: &ThreadKey, post: &str) -> Result<(), DbError> {
    query(
        "INSERT INTO posts (channel, id, thread, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (channel, id) DO NOTHING",
    )
    .bind(thread.channel().to_string())
    .bind(post)
    .bind(thread.to_string())
    .bind(tx.now())
    .execute(&mut **tx)
    .await?;
    Ok(())
}
