//! Codes that let people in, and whom they let in.

use std::borrow::Cow;

use mayfly_domain::{Author, Event, Happened, Place, Posted};
use sqlx::{AnyConnection, Row as _, any::AnyRow};

use super::{Db, DbError, Tx, query};
use crate::inbox::{
    access::{Access, Verdict},
    courtesy::Courtesy,
    pairing::{self, GOOD_FOR, TRIES},
};

/// Somebody who may speak because of a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paired {
    /// Where.
    pub platform: String,
    /// Who.
    pub person: Author,
    /// Since when, unix ms.
    pub since: i64,
}

/// What came of a post with a code in it.
pub(super) enum Tried {
    /// Its author may speak from now on, and is answered like one who asks for help.
    Paired(Box<Event>),
    /// Nothing; the word is for the operator, and this for whoever tried.
    Refused(&'static str, Option<Courtesy>),
}

/// Takes the code that an event holds, if it does. For whoever may speak all but a code is a word like
/// any other. `access` knows who was let in.
pub(super) async fn tried(
    tx: &mut Tx,
    event: &Event,
    access: &Access,
) -> Result<Option<Tried>, DbError> {
    let (posted, new) = match &event.happened {
        Happened::Posted(posted) => (posted, true),
        Happened::Edited(posted) => (posted, false),
        _ => return Ok(None),
    };
    let Some(code) = pairing::code_in(&posted.text) else {
        return Ok(None);
    };
    let (platform, hash) = (&posted.id.channel.platform, pairing::hash(code));
    let may = access.judge(posted, &posted.id.channel) == Verdict::May;
    let open = is_open(tx, platform, &hash).await?;
    let alone = new
        && posted.place == Place::Direct
        && !posted.by_bot
        && posted.words_of.is_none()
        && posted.group.is_none();
    let code_like = pairing::looks_like_one(code);
    if !open && !code_like && (may || !alone) {
        return Ok(None);
    }
    let own = new && !posted.by_bot && posted.words_of.is_none();
    if !alone && (open || !may || !own) {
        // Others have seen it.
        let void = query("DELETE FROM pairing_codes WHERE platform = $1 AND hash = $2");
        void.bind(platform).bind(hash).execute(&mut **tx).await?;
        let why = "a pairing code where others read it";
        return Ok(Some(Tried::Refused(why, None)));
    }
    if may && !open {
        // The link that let them in was opened again.
        return Ok(Some(Tried::Paired(Box::new(asking(event, posted)))));
    }
    if !redeem(tx, platform, &hash).await? {
        let not_let_in = Courtesy::NotLetIn {
            thread: posted.thread.clone(),
            person: posted.author.id.clone(),
        };
        return Ok(Some(Tried::Refused(
            "a wrong pairing code",
            Some(not_let_in),
        )));
    }
    query(
        "INSERT INTO paired (platform, person, name, paired_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (platform, person) DO UPDATE SET name = excluded.name",
    )
    .bind(platform)
    .bind(&posted.author.id)
    .bind(posted.author.shown_name())
    .bind(tx.now())
    .execute(&mut **tx)
    .await?;
    tracing::info!(platform, person = posted.author.id, "paired");
    Ok(Some(Tried::Paired(Box::new(asking(event, posted)))))
}

/// The same post, asking for help.
fn asking(event: &Event, posted: &Posted) -> Event {
    let asks = Posted {
        text: "/help".to_owned(),
        ..posted.clone()
    };
    Event {
        key: event.key.clone(),
        happened: Happened::Posted(Box::new(asks)),
    }
}

/// Whether this is the code of today, or of lately.
async fn is_open(tx: &mut Tx, platform: &str, hash: &str) -> Result<bool, DbError> {
    let row = query("SELECT count(*) FROM pairing_codes WHERE platform = $1 AND hash = $2")
        .bind(platform)
        .bind(hash)
        .fetch_one(&mut **tx)
        .await?;
    Ok(row.try_get::<i64, _>(0)? > 0)
}

/// Whether it is the open code, which is used up by that.
async fn redeem(tx: &mut Tx, platform: &str, hash: &str) -> Result<bool, DbError> {
    let now = tx.now();
    // A clock that was set back makes none good for longer.
    let good = "expires_at > $2 AND expires_at <= $3";
    let sql = format!("DELETE FROM pairing_codes WHERE platform = $1 AND NOT ({good})");
    let latest = now + GOOD_FOR.as_millis() as i64;
    let old = query(sqlx::AssertSqlSafe(sql));
    let old = old.bind(platform).bind(now).bind(latest);
    old.execute(&mut **tx).await?;
    let used = query("DELETE FROM pairing_codes WHERE platform = $1 AND hash = $2");
    let used = used.bind(platform).bind(hash).execute(&mut **tx).await?;
    if used.rows_affected() == 1 {
        return Ok(true);
    }
    let wrong = query("UPDATE pairing_codes SET tries = tries + 1 WHERE platform = $1");
    wrong.bind(platform).execute(&mut **tx).await?;
    let void = query("DELETE FROM pairing_codes WHERE platform = $1 AND tries >= $2");
    void.bind(platform).bind(TRIES).execute(&mut **tx).await?;
    Ok(false)
}

/// The rights of a platform with those who were paired.
pub(super) async fn with_paired<'a>(
    connection: &mut AnyConnection,
    platform: &str,
    access: &'a Access,
) -> Result<Cow<'a, Access>, DbError> {
    let rows = query("SELECT person FROM paired WHERE platform = $1")
        .bind(platform)
        .fetch_all(connection)
        .await?;
    if rows.is_empty() {
        return Ok(Cow::Borrowed(access));
    }
    let mut access = access.clone();
    for row in rows {
        access.audience.allowed_users.push(row.try_get(0)?);
    }
    Ok(Cow::Owned(access))
}

fn paired(row: &AnyRow) -> Result<Paired, DbError> {
    Ok(Paired {
        platform: row.try_get(0)?,
        person: Author {
            id: row.try_get(1)?,
            name: row.try_get(2)?,
        },
        since: row.try_get(3)?,
    })
}

impl Db {
    /// Opens a code, in place of the one that was open.
    pub async fn open_pairing(&self, platform: &str, hash: &str) -> Result<i64, DbError> {
        let expires_at = self.now() + GOOD_FOR.as_millis() as i64;
        query(
            "INSERT INTO pairing_codes (platform, hash, expires_at) VALUES ($1, $2, $3)
             ON CONFLICT (platform) DO UPDATE SET hash = excluded.hash,
               expires_at = excluded.expires_at, tries = 0",
        )
        .bind(platform)
        .bind(hash)
        .bind(expires_at)
        .execute(self.writer())
        .await?;
        Ok(expires_at)
    }

    /// Everybody who was let in, by platform and time.
    pub async fn paired(&self) -> Result<Vec<Paired>, DbError> {
        let rows = query(
            "SELECT platform, person, name, paired_at FROM paired ORDER BY platform, paired_at, person",
        )
        .fetch_all(self.reader())
        .await?;
        rows.iter().map(paired).collect()
    }

    /// Somebody may not speak any more. None if nobody of this id was let in.
    pub async fn unpair(&self, platform: &str, person: &str) -> Result<Option<Paired>, DbError> {
        let gone = query(
            "DELETE FROM paired WHERE platform = $1 AND person = $2
             RETURNING platform, person, name, paired_at",
        )
        .bind(platform)
        .bind(person)
        .fetch_optional(self.writer())
        .await?;
        gone.as_ref().map(paired).transpose()
    }

    /// The rights of a platform with those who were paired.
    pub async fn with_paired<'a>(
        &self,
        platform: &str,
        access: &'a Access,
    ) -> Result<Cow<'a, Access>, DbError> {
        with_paired(&mut *self.reader().acquire().await?, platform, access).await
    }
}
