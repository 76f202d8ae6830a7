//! Which images living agents stand on, and which registry gives them again.

use sqlx::Row as _;

use super::{Db, DbError, query};

/// An image that a living agent needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInUse {
    /// The engine's id.
    pub id: String,
    /// When its first agent was made, unix milliseconds.
    pub since: i64,
    /// Gives it again, if any registry does.
    pub registry: Option<String>,
}

impl Db {
    /// Images that living agents stand on.
    pub async fn images_in_use(&self) -> Result<Vec<ImageInUse>, DbError> {
        let rows = query(
            "SELECT b.image, b.created_at, b.registry FROM bases b
              WHERE EXISTS (SELECT 1 FROM agents a WHERE a.image = b.image AND a.removed_at IS NULL)
              ORDER BY b.image",
        )
        .fetch_all(self.reader())
        .await?;
        rows.iter()
            .map(|row| {
                Ok(ImageInUse {
                    id: row.try_get(0)?,
                    since: row.try_get(1)?,
                    registry: row.try_get(2)?,
                })
            })
            .collect()
    }

    /// The registry's name of an image, where one was recorded.
    pub async fn registry_of(&self, image: &str) -> Result<Option<String>, DbError> {
        let row = query("SELECT registry FROM bases WHERE image = $1")
            .bind(image)
            .fetch_optional(self.reader())
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
    }

    /// Records which registry gives an image again. What was known once stays: an image that came
    /// back from an archive has forgotten it.
    pub async fn set_registry(&self, image: &str, registry: &str) -> Result<(), DbError> {
        query("UPDATE bases SET registry = $2 WHERE image = $1")
            .bind(image)
            .bind(registry)
            .execute(self.writer())
            .await?;
        Ok(())
    }
}
