//! The time that all processes on one database share: ages of what one of them wrote and another removes go by it,
//! whatever the clocks of their hosts say.

use std::sync::{Mutex, PoisonError};

use sqlx::Row as _;

use super::{Db, DbError, Dialect, query};
use crate::clock;

/// How far the server's clock is ahead of this host's boot clock, in milliseconds, as it last told.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<Option<i64>>);

impl Db {
    /// That time in unix milliseconds: the server's, or this host's where the database is a file. A server that does
    /// not answer is not asked for it again: its clock is believed to have gone on as the boot clock did.
    pub async fn wall_clock(&self) -> Result<i64, DbError> {
        if self.dialect == Dialect::Sqlite {
            return Ok(clock::unix_ms());
        }
        let known = || *self.ahead.0.lock().unwrap_or_else(PoisonError::into_inner);
        match self.told_time().await {
            Ok(now) => {
                let mut ahead = self.ahead.0.lock().unwrap_or_else(PoisonError::into_inner);
                *ahead = Some(now - boot_ms());
                Ok(now)
            }
            Err(error) => known().map(|ahead| boot_ms() + ahead).ok_or(error),
        }
    }

    async fn told_time(&self) -> Result<i64, DbError> {
        let sql = format!("SELECT {}", self.dialect.now());
        let row = query(sqlx::AssertSqlSafe(sql))
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get(0)?)
    }
}

fn boot_ms() -> i64 {
    clock::boot_time().as_millis() as i64
}
