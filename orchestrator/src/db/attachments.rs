//! What was uploaded, and the files of messages.

use mayfly_domain::{Attachment, AttachmentError, BlobHash, MessageId, NewFile, file_names};
use sqlx::Row as _;

use super::{Db, DbError, Tx, doomed::UPLOAD_MS, parse, pins::Pin, query};

/// Messages that one statement asks for; SQLite takes 32,766 values.
const IDS: usize = 1000;

/// The files a message names, by names that are fit for a folder, with their real sizes.
pub(super) async fn uploaded(
    tx: &mut Tx,
    named: &[NewFile],
) -> Result<Result<Vec<Attachment>, AttachmentError>, DbError> {
    let names = file_names(named.iter().map(|file| file.name.as_str()));
    let mut files = Vec::new();
    for (file, name) in named.iter().zip(names) {
        let row = query("SELECT size FROM uploads WHERE blob = $1")
            .bind(file.blob.as_str())
            .fetch_optional(&mut **tx)
            .await?;
        let Some(row) = row else {
            return Ok(Err(AttachmentError::Unknown(file.blob.clone())));
        };
        files.push(Attachment {
            name,
            blob: file.blob.clone(),
            size: row.try_get::<i64, _>(0)?.max(0) as u64,
        });
    }
    Ok(Ok(files))
}

/// Records a message's files.
pub(super) async fn attach(
    tx: &mut Tx,
    message: MessageId,
    files: &[Attachment],
) -> Result<(), DbError> {
    for (position, file) in files.iter().enumerate() {
        query(
            "INSERT INTO message_files (message, position, name, blob, size)
             VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(message.to_string())
        .bind(position as i64)
        .bind(&file.name)
        .bind(file.blob.as_str())
        .bind(file.size as i64)
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
}

impl Db {
    /// A blob is whole in the store; messages may name it from now on.
    pub async fn record_upload(&self, blob: &BlobHash, size: u64) -> Result<(), DbError> {
        let sql = format!(
            "INSERT INTO uploads (blob, size, uploaded_at) VALUES ($1, $2, {})
             ON CONFLICT (blob) DO UPDATE SET uploaded_at = excluded.uploaded_at",
            self.dialect.now()
        );
        query(sqlx::AssertSqlSafe(sql))
            .bind(blob.as_str())
            .bind(size as i64)
            .execute(self.writer())
            .await?;
        Ok(())
    }

    /// The files of messages; those of each are in the order its author gave them.
    pub async fn attachments_of(
        &self,
        messages: &[MessageId],
    ) -> Result<Vec<(MessageId, Attachment)>, DbError> {
        let mut found = Vec::new();
        for some in messages.chunks(IDS) {
            let places: Vec<String> = (1..=some.len()).map(|n| format!("${n}")).collect();
            let sql = format!(
                "SELECT message, name, blob, size FROM message_files WHERE message IN ({})
                 ORDER BY message, position",
                places.join(", ")
            );
            let query = query(sqlx::AssertSqlSafe(sql));
            let query = some
                .iter()
                .fold(query, |query, id| query.bind(id.to_string()));
            for row in &query.fetch_all(self.reader()).await? {
                let (id, blob): (String, String) = (row.try_get(0)?, row.try_get(2)?);
                let file = Attachment {
                    name: row.try_get(1)?,
                    blob: parse("message_files", &id, "blob", &blob)?,
                    size: row.try_get::<i64, _>(3)?.max(0) as u64,
                };
                found.push((parse("message_files", &id, "message", &id)?, file));
            }
        }
        Ok(found)
    }

    /// Keeps blobs that no row names yet, until the pin is dropped.
    pub async fn pin_blobs(&self, blobs: &[BlobHash]) -> Result<Pin, DbError> {
        let (pin, me) = (self.new_pin(), self.member());
        let mut tx = self.begin().await?;
        for (n, blob) in blobs.iter().enumerate() {
            let sql = format!(
                "INSERT INTO pins (id, layer, reason, created_at, worker, epoch)
                 VALUES ($1, $2, 'reply', {}, $3, $4)",
                self.dialect.now()
            );
            query(sqlx::AssertSqlSafe(sql))
                .bind(format!("{}.{n}", pin.id))
                .bind(blob.as_str())
                .bind(&me.id)
                .bind(me.epoch)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(pin)
    }

    /// Whether a delivery, a part of one, a message or a tick that runs names this blob, or it was uploaded within a
    /// day.
    pub async fn names_blob(&self, blob: &BlobHash) -> Result<bool, DbError> {
        let sql = format!(
            "SELECT count(*) WHERE {NAMED} OR EXISTS
            (SELECT 1 FROM uploads WHERE blob = $1 AND uploaded_at >= {} - $2)",
            self.dialect.now()
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(blob.as_str())
            .bind(UPLOAD_MS)
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get::<i64, _>(0)? > 0)
    }

    /// Forgets an upload that nothing names and that is more than a day old. False if it has to stay;
    /// after a true no message can name it, and its content may go.
    pub async fn forget_upload(&self, blob: &BlobHash) -> Result<bool, DbError> {
        let mut tx = self.begin().await?;
        let sql = format!(
            "DELETE FROM uploads WHERE blob = $1 AND uploaded_at < {} - $2 AND NOT ({NAMED})",
            self.dialect.now()
        );
        query(sqlx::AssertSqlSafe(sql))
            .bind(blob.as_str())
            .bind(UPLOAD_MS)
            .execute(&mut *tx)
            .await?;
        let sql = format!(
            "SELECT count(*) WHERE {NAMED} OR EXISTS (SELECT 1 FROM uploads WHERE blob = $1)"
        );
        let row = query(sqlx::AssertSqlSafe(sql))
            .bind(blob.as_str())
            .fetch_one(&mut *tx)
            .await?;
        let free = row.try_get::<i64, _>(0)? == 0;
        tx.commit().await?;
        Ok(free)
    }

    /// Uploads that no message names do not travel with a backup.
    pub async fn forget_unnamed_uploads(&self) -> Result<(), DbError> {
        query("DELETE FROM uploads WHERE blob NOT IN (SELECT blob FROM message_files)")
            .execute(self.writer())
            .await?;
        Ok(())
    }
}

const NAMED: &str = "EXISTS (SELECT 1 FROM delivery_files WHERE blob = $1)
    OR EXISTS (SELECT 1 FROM message_files WHERE blob = $1)
    OR EXISTS (SELECT 1 FROM parts WHERE blob = $1)
    OR EXISTS (SELECT 1 FROM buttons WHERE blob = $1)
    OR EXISTS (SELECT 1 FROM pins WHERE layer = $1)";
