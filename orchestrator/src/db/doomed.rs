//! Objects of the layer store that no row needs: marked in the transaction that forgets them, removed after
//! a time of grace, and never while somebody puts them anew.

use mayfly_domain::{BlobHash, LayerId};
use sqlx::Row as _;

use super::{Db, DbError, Tx, query};
use crate::clock;

/// Whoever began to remove an object and is not heard of for so long has died; milliseconds.
const DIED_MS: i64 = 10 * 60 * 1000;
/// Marks of one round.
const MOST: i64 = 200;

/// What an object's name says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Of this layer.
    Layer(LayerId),
    /// Of this content.
    Blob(BlobHash),
}

impl Kind {
    /// Reads an object's name; none where it is nothing that is ever removed.
    pub fn of(object: &str) -> Option<Kind> {
        let (folder, name) = object.split_once('/')?;
        match folder {
            "layers" => Some(Kind::Layer(name.split_once('.')?.0.parse().ok()?)),
            "blobs" => Some(Kind::Blob(name.split_once('/')?.1.parse().ok()?)),
            _ => None,
        }
    }
}

/// Marks the object of a layer whose row is about to go.
pub(super) async fn doom_layer(tx: &mut Tx, layer: &LayerId, now: i64) -> Result<(), DbError> {
    query(
        "INSERT INTO doomed (object, at) SELECT 'layers/' || id || '.' || digest, $2 FROM layers
         WHERE id = $1 AND stored_at IS NOT NULL AND digest IS NOT NULL
         ON CONFLICT (object) DO NOTHING",
    )
    .bind(layer.as_str())
    .bind(now)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

impl Db {
    /// Marks an object that no row named a moment ago.
    pub async fn doom(&self, object: &str) -> Result<(), DbError> {
        query("INSERT INTO doomed (object, at) VALUES ($1, $2) ON CONFLICT (object) DO NOTHING")
            .bind(object)
            .bind(clock::unix_ms())
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// It is about to be put. False while somebody is removing it: then it has to wait.
    pub async fn spare(&self, object: &str) -> Result<bool, DbError> {
        let mut tx = self.begin().await?;
        query("DELETE FROM doomed WHERE object = $1 AND (removing_at IS NULL OR removing_at < $2)")
            .bind(object)
            .bind(clock::unix_ms() - DIED_MS)
            .execute(&mut *tx)
            .await?;
        let row = query("SELECT count(*) FROM doomed WHERE object = $1")
            .bind(object)
            .fetch_one(&mut *tx)
            .await?;
        let marks: i64 = row.try_get(0)?;
        tx.commit().await?;
        Ok(marks == 0)
    }

    /// Objects marked before this time (unix ms), oldest first.
    pub async fn doomed(&self, before: i64) -> Result<Vec<String>, DbError> {
        let rows = query(
            "SELECT object FROM doomed WHERE at < $1 AND (removing_at IS NULL OR removing_at < $2)
             ORDER BY at, object LIMIT $3",
        )
        .bind(before)
        .bind(clock::unix_ms() - DIED_MS)
        .bind(MOST)
        .fetch_all(self.reader())
        .await?;
        let text = |row: &sqlx::any::AnyRow| Ok(row.try_get(0)?);
        rows.iter().map(text).collect()
    }

    /// Takes the right to remove a marked object. False where somebody else has it, or a row needs the
    /// object after all: then its mark goes.
    pub async fn begin_removal(&self, object: &str, uploaded: i64) -> Result<bool, DbError> {
        let now = clock::unix_ms();
        let mut tx = self.begin().await?;
        // Read while nobody writes: what is named later was put later, and waits for the mark.
        let named = self.is_named(object, uploaded).await?;
        let sql = match named {
            true => {
                "DELETE FROM doomed WHERE object = $1
                 AND (removing_at IS NULL OR removing_at < $3) AND $2 > $3"
            }
            false => {
                "UPDATE doomed SET removing_at = $2
                 WHERE object = $1 AND (removing_at IS NULL OR removing_at < $3)"
            }
        };
        let done = query(sql)
            .bind(object)
            .bind(now)
            .bind(now - DIED_MS)
            .execute(&mut *tx)
            .await?
            .rows_affected();
        tx.commit().await?;
        Ok(!named && done == 1)
    }

    /// It is gone.
    pub async fn removed(&self, object: &str) -> Result<(), DbError> {
        query("DELETE FROM doomed WHERE object = $1 AND removing_at IS NOT NULL")
            .bind(object)
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// Whether a row needs this object, or may need it soon.
    pub async fn is_named(&self, object: &str, uploaded: i64) -> Result<bool, DbError> {
        match Kind::of(object) {
            Some(Kind::Layer(layer)) => {
                let one = [layer];
                Ok(self.unnamed_layers(&one).await?.is_empty())
            }
            Some(Kind::Blob(hash)) => self.names_blob(&hash, uploaded).await,
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_layers_and_blobs_are_ever_removed() {
        let layer = LayerId::new();
        let digest = "ab".repeat(32);
        let kind = Kind::of(&format!("layers/{layer}.{digest}"));
        assert_eq!(kind, Some(Kind::Layer(layer)));
        let blob = Kind::of(&format!("blobs/ab/{digest}"));
        assert_eq!(blob, Some(Kind::Blob(digest.parse().unwrap())));
        for other in [
            "mayfly-store",
            "bases/x.y",
            "layers/what",
            "blobs/x",
            "mine/a.b",
        ] {
            assert_eq!(Kind::of(other), None, "{other}");
        }
    }
}
