//! Objects of the layer store that no row needs: marked in the transaction that forgets them, removed after
//! a time of grace, and never while somebody puts them anew. All times are the database's.

use std::collections::HashSet;

use mayfly_domain::{BaseId, BlobHash, LayerId, TickId};
use sqlx::Row as _;

use super::{Db, DbError, Tx, query};

/// Between the mark and the removal, in milliseconds: whoever has put something has so long to name it.
pub const GRACE_MS: i64 = 60 * 60 * 1000;
/// An upload that no message names is kept at least so long; milliseconds.
pub const UPLOAD_MS: i64 = 24 * 60 * 60 * 1000;
/// Whoever began to remove an object and is not heard of for so long has died; milliseconds.
const DIED_MS: i64 = 10 * 60 * 1000;
/// Marks of one round.
const MOST: i64 = 200;

/// What an object's name says it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Of this layer.
    Layer(LayerId),
    /// Of this base, with these bytes.
    Base(BaseId, String),
    /// Of this tick's transcript, with these bytes.
    Transcript(TickId, String),
    /// Of this content.
    Blob(BlobHash),
}

impl Kind {
    /// Folders that hold such objects.
    pub const FOLDERS: [&str; 5] = ["layers", "bases", "transcripts", "blobs", "anew"];

    /// Reads an object's name; none where it is nothing that is ever removed.
    pub fn of(object: &str) -> Option<Kind> {
        let (folder, name) = object.split_once('/')?;
        match folder {
            "layers" => Some(Kind::Layer(name.split_once('.')?.0.parse().ok()?)),
            "bases" => {
                let (base, digest) = name.split_once('.')?;
                Some(Kind::Base(base.parse().ok()?, digest.to_owned()))
            }
            "transcripts" => {
                let (tick, digest) = name.split_once('/')?.1.split_once('.')?;
                Some(Kind::Transcript(tick.parse().ok()?, digest.to_owned()))
            }
            "blobs" => Some(Kind::Blob(name.split_once('/')?.1.parse().ok()?)),
            "anew" => Some(Kind::Blob(name.split_once('/')?.0.parse().ok()?)),
            _ => None,
        }
    }
}

/// Marks the object of a layer whose row is about to go.
pub(super) async fn doom_layer(db: &Db, tx: &mut Tx, layer: &LayerId) -> Result<(), DbError> {
    let sql = format!(
        "INSERT INTO doomed (object, at) SELECT 'layers/' || id || '.' || digest, {} FROM layers
         WHERE id = $1 AND stored_at IS NOT NULL AND digest IS NOT NULL
         ON CONFLICT (object) DO NOTHING",
        db.dialect.now()
    );
    doom(tx, sql, layer.as_str()).await
}

/// Marks the object of a base that is about to be gone; put again it gets a row's word anew.
pub(super) async fn doom_base(db: &Db, tx: &mut Tx, base: &BaseId) -> Result<(), DbError> {
    let sql = format!(
        "INSERT INTO doomed (object, at) SELECT 'bases/' || id || '.' || digest, {} FROM bases
         WHERE id = $1 AND stored_at IS NOT NULL AND digest IS NOT NULL
         ON CONFLICT (object) DO NOTHING",
        db.dialect.now()
    );
    doom(tx, sql, base.as_str()).await?;
    query("UPDATE bases SET digest = NULL, packed = NULL, stored_at = NULL WHERE id = $1")
        .bind(base.as_str())
        .execute(&mut **tx)
        .await?;
    Ok(())
}

async fn doom(tx: &mut Tx, sql: String, id: &str) -> Result<(), DbError> {
    query(sqlx::AssertSqlSafe(sql))
        .bind(id)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl Db {
    /// Marks objects that no row named a moment ago.
    pub async fn doom(&self, objects: &[String]) -> Result<(), DbError> {
        if objects.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        for object in objects {
            let sql = format!(
                "INSERT INTO doomed (object, at) VALUES ($1, {}) ON CONFLICT (object) DO NOTHING",
                self.dialect.now()
            );
            query(sqlx::AssertSqlSafe(sql))
                .bind(object)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await
    }

    /// It is about to be put. False where somebody may be removing it, also one that is not heard of any more: it
    /// may have been frozen, and goes on some day.
    pub async fn spare(&self, object: &str) -> Result<bool, DbError> {
        let mut tx = self.begin().await?;
        query("DELETE FROM doomed WHERE object = $1 AND removing_at IS NULL")
            .bind(object)
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

    /// Objects whose time of grace is over, oldest first.
    pub async fn doomed(&self) -> Result<Vec<String>, DbError> {
        let sql = format!(
            "SELECT object FROM doomed WHERE at < {now} - $1
             AND (removing_at IS NULL OR removing_at < {now} - $2) ORDER BY at, object LIMIT $3",
            now = self.dialect.now()
        );
        let rows = query(sqlx::AssertSqlSafe(sql))
            .bind(GRACE_MS)
            .bind(DIED_MS)
            .bind(MOST)
            .fetch_all(self.reader())
            .await?;
        let text = |row: &sqlx::any::AnyRow| Ok(row.try_get(0)?);
        rows.iter().map(text).collect()
    }

    /// Takes the right to remove a marked object. False where somebody else has it, or a row needs the
    /// object after all: then its mark goes.
    pub async fn begin_removal(&self, object: &str) -> Result<bool, DbError> {
        let now = self.dialect.now();
        let mut tx = self.begin().await?;
        // Read while nobody writes: what is named later was put later, and spared before.
        let named = self.unnamed(&[object.to_owned()]).await?.is_empty();
        let free = format!("object = $1 AND (removing_at IS NULL OR removing_at < {now} - $2)");
        let sql = match named {
            true => format!("DELETE FROM doomed WHERE {free}"),
            false => format!("UPDATE doomed SET removing_at = {now} WHERE {free}"),
        };
        let done = query(sqlx::AssertSqlSafe(sql))
            .bind(object)
            .bind(DIED_MS)
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

    /// Those of these objects that no row needs, nor may need soon.
    pub async fn unnamed(&self, objects: &[String]) -> Result<Vec<String>, DbError> {
        let kinds: Vec<(&String, Option<Kind>)> =
            objects.iter().map(|name| (name, Kind::of(name))).collect();
        let kind = |kind: &Option<Kind>| match kind {
            Some(Kind::Layer(layer)) => Some(layer.to_string()),
            _ => None,
        };
        let layers: Vec<String> = kinds.iter().filter_map(|(_, of)| kind(of)).collect();
        // In this order: a tick that is over now has written its row, if ever it does.
        let open =
            "SELECT layer FROM ticks WHERE (outcome IS NULL OR removed_at IS NULL) AND layer";
        let mut named = self.among(open, &layers).await?;
        named.extend(
            self.among("SELECT id FROM layers WHERE id", &layers)
                .await?,
        );
        let told: Vec<String> = kinds
            .iter()
            .filter_map(|(_, of)| match of {
                Some(Kind::Transcript(tick, _)) => Some(tick.to_string()),
                _ => None,
            })
            .collect();
        // Without a transcript it may be put right now.
        let sql = "SELECT id || '.' || COALESCE(transcript, '') FROM ticks WHERE id";
        named.extend(self.among(sql, &told).await?);
        let mut unnamed = Vec::new();
        for (object, of) in kinds {
            let needed = match of {
                None => true,
                Some(Kind::Layer(layer)) => named.contains(layer.as_str()),
                Some(Kind::Transcript(tick, digest)) => {
                    let either = [format!("{tick}.{digest}"), format!("{tick}.")];
                    either.iter().any(|known| named.contains(known))
                }
                Some(Kind::Base(base, digest)) => self.names_base(&base, &digest).await?,
                Some(Kind::Blob(hash)) => self.names_blob(&hash).await?,
            };
            if !needed {
                unnamed.push(object.clone());
            }
        }
        Ok(unnamed)
    }

    /// Texts that `sql`, which ends with a column, gives where that is one of these.
    async fn among(&self, sql: &str, ids: &[String]) -> Result<HashSet<String>, DbError> {
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let places: Vec<String> = (1..=ids.len()).map(|n| format!("${n}")).collect();
        let sql = format!("{sql} IN ({})", places.join(", "));
        let asked = query(sqlx::AssertSqlSafe(sql));
        let asked = ids.iter().fold(asked, |asked, id| asked.bind(id));
        let rows = asked.fetch_all(self.reader()).await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Whether a base is kept whose object this is, or may be put right now.
    async fn names_base(&self, base: &BaseId, digest: &str) -> Result<bool, DbError> {
        let sql =
            "SELECT count(*) FROM bases WHERE id = $1 AND gone = 0 AND COALESCE(digest, $2) = $2";
        let row = query(sql)
            .bind(base.as_str())
            .bind(digest)
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ever_removed_is_known_by_its_name() {
        let layer = LayerId::new();
        let digest = "ab".repeat(32);
        let kind = Kind::of(&format!("layers/{layer}.{digest}"));
        assert_eq!(kind, Some(Kind::Layer(layer)));
        let blob = Kind::of(&format!("blobs/ab/{digest}"));
        assert_eq!(blob, Some(Kind::Blob(digest.parse().unwrap())));
        let anew = Kind::of(&format!("anew/{digest}/7"));
        assert_eq!(anew, Some(Kind::Blob(digest.parse().unwrap())));
        let base = BaseId::new();
        let kind = Kind::of(&format!("bases/{base}.{digest}"));
        assert_eq!(kind, Some(Kind::Base(base, digest.clone())));
        let tick = TickId::new();
        let kind = Kind::of(&format!("transcripts/agent/{tick}.{digest}"));
        assert_eq!(kind, Some(Kind::Transcript(tick, digest)));
        for other in [
            "mayfly-store",
            "bases/what",
            "layers/what",
            "transcripts/x.y",
            "blobs/x",
            "mine/a.b",
        ] {
            assert_eq!(Kind::of(other), None, "{other}");
        }
    }
}
