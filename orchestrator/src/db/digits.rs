//! Ids by their last digits, as people write them, found in an index over the digits reversed.

use std::str::FromStr;

use super::{Db, DbError, ids, query};

/// As the indexes `agents_end` and `ticks_end` have it: the last 8 digits, last first.
const REVERSED: &str = "(substr(id, 36, 1) || substr(id, 35, 1) || substr(id, 34, 1) || substr(id, 33, 1) \
     || substr(id, 32, 1) || substr(id, 31, 1) || substr(id, 30, 1) || substr(id, 29, 1))";
const INDEXED: usize = 8;

impl Db {
    /// At most two ids of rows that end with these hexadecimal digits and are as `also` says.
    pub(super) async fn ending<Id: FromStr>(
        &self,
        table: &'static str,
        digits: &str,
        also: &'static str,
    ) -> Result<Vec<Id>, DbError> {
        let from: String = digits.chars().rev().take(INDEXED).collect();
        let sql = format!(
            "SELECT id FROM {table} WHERE {REVERSED} >= $1 AND {REVERSED} < $2
             AND REPLACE(id, '-', '') LIKE $3 {also} LIMIT 2"
        );
        let rows = query(sqlx::AssertSqlSafe(sql))
            .bind(&from)
            // Sorts after every digit.
            .bind(format!("{from}~"))
            .bind(format!("%{digits}"))
            .fetch_all(self.reader())
            .await?;
        ids(table, &rows)
    }
}
