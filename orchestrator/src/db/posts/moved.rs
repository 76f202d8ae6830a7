//! A chat gets a new id: its conversations go with it, and keep the rights it had.

use mayfly_domain::{Channel, ThreadKey};
use sqlx::{AnyConnection, Row as _};

use super::super::{DbError, parse, query};

/// Posts keep their ids' channel, since the new one counts anew.
pub(in crate::db) async fn move_channel(
    tx: &mut AnyConnection,
    from: &Channel,
    to: &Channel,
) -> Result<(), DbError> {
    let (from, to) = (from.to_string(), to.to_string());
    let rest = from.chars().count() as i64 + 1;
    // PostgreSQL has no function for the wider number.
    let at = "CAST($3 AS INTEGER)";
    query(
        "INSERT INTO moved_channels (channel, began_as)
         VALUES ($2, COALESCE((SELECT began_as FROM moved_channels WHERE channel = $1), $1))
         ON CONFLICT (channel) DO NOTHING",
    )
    .bind(&from)
    .bind(&to)
    .execute(&mut *tx)
    .await?;
    for (table, column, free) in [
        // Somebody may have spoken in the new chat before its word came.
        (
            "threads",
            "key",
            format!(
                "AND NOT EXISTS (SELECT 1 FROM threads o WHERE o.key = $2 || SUBSTR(threads.key, {at}))"
            ),
        ),
        ("posts", "thread", String::new()),
    ] {
        let sql = format!(
            "UPDATE {table} SET {column} = $2 || SUBSTR({column}, {at})
             WHERE SUBSTR({column}, 1, {at}) = $1 || '/' {free}"
        );
        query(sqlx::AssertSqlSafe(sql))
            .bind(&from)
            .bind(&to)
            .bind(rest)
            .execute(&mut *tx)
            .await?;
    }
    // Where somebody spoke in the new chat before, what is owed goes there.
    for (table, open) in [
        ("deliveries", "state = 'owed'"),
        ("orders", "state != 'done'"),
    ] {
        let sql = format!(
            "UPDATE {table} SET thread = (SELECT n.id FROM threads n JOIN threads o
                 ON n.key = $2 || SUBSTR(o.key, {at}) WHERE o.id = {table}.thread)
             WHERE {open} AND thread IN (SELECT o.id FROM threads o JOIN threads n
                 ON n.key = $2 || SUBSTR(o.key, {at}) WHERE SUBSTR(o.key, 1, {at}) = $1 || '/')"
        );
        query(sqlx::AssertSqlSafe(sql))
            .bind(&from)
            .bind(&to)
            .bind(rest)
            .execute(&mut *tx)
            .await?;
    }
    Ok(())
}

/// The channel by the id that it had when the configuration was written.
pub(in crate::db) async fn began_as(
    tx: &mut AnyConnection,
    channel: &Channel,
) -> Result<Channel, DbError> {
    let row = query("SELECT began_as FROM moved_channels WHERE channel = $1")
        .bind(channel.to_string())
        .fetch_optional(tx)
        .await?;
    let Some(row) = row else {
        return Ok(channel.clone());
    };
    let key: String = row.try_get(0)?;
    let whole: ThreadKey = parse("moved_channels", &key, "began_as", &format!("{key}/"))?;
    Ok(whole.channel())
}
