//! The database as a whole: copied while it is written to, looked into, and judged.

use std::{
    collections::HashSet,
    fs::{File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use mayfly_domain::{AgentId, BaseId, BlobHash, LayerId, TickId};
use sqlx::{AnyConnection, Connection as _, Row as _, any::install_default_drivers};

use super::{Db, DbError, Dialect, error::reason, ids, images::ImageInUse, parse, pins::Pin};

/// So often a copy is made anew because garbage collection was quicker.
const ATTEMPTS: u32 = 5;

/// The files that the rows of a database name.
#[derive(Debug, Default)]
pub struct Named {
    /// Sealed layers.
    pub layers: Vec<LayerId>,
    /// Bases that are kept.
    pub bases: Vec<BaseId>,
    /// Every tick may have a transcript.
    pub ticks: Vec<(AgentId, TickId)>,
    /// Files of messages, and files owed or sent.
    pub blobs: Vec<BlobHash>,
    /// Images of living agents.
    pub images: Vec<ImageInUse>,
}

impl Db {
    /// A whole copy as of one moment, at `path`, where nothing may be; what it names, and the pin
    /// that keeps the layers and bases in it.
    ///
    /// Nobody waits for the copy, so the pin comes after it: where something it names is gone by
    /// then, it is made anew.
    pub async fn copy_to(&self, path: &Path) -> Result<(Named, Pin), DbError> {
        if self.dialect == Dialect::Postgres {
            return Err(DbError::NoCopy);
        }
        for _ in 0..ATTEMPTS {
            self.vacuum_into(path).await?;
            let named = Named::read(path).await?;
            if let Some(pin) = self.pin_all(&named).await? {
                return Ok((named, pin));
            }
            std::fs::remove_file(path).map_err(sqlx::Error::Io)?;
        }
        Err(DbError::Sql(sqlx::Error::Io(io::Error::other(
            "layers are removed faster than the database is copied: try again later",
        ))))
    }

    async fn vacuum_into(&self, path: &Path) -> Result<(), DbError> {
        let mut connection = self.reader().acquire().await?;
        Ok(vacuum_into(&mut connection, path).await?)
    }

    /// None if a layer or base that `named` has is not kept any more.
    async fn pin_all(&self, named: &Named) -> Result<Option<Pin>, DbError> {
        let mut tx = self.begin().await?;
        for (sql, names) in [
            (LAYERS, texts(&named.layers, LayerId::as_str)),
            (BASES, texts(&named.bases, BaseId::as_str)),
        ] {
            let kept: HashSet<String> = column(&mut tx, sql).await?.into_iter().collect();
            if names.iter().any(|name| !kept.contains(*name)) {
                return Ok(None);
            }
        }
        let (pin, me) = (self.new_pin(), self.member());
        for table in ["layers", "bases"] {
            // More than what is named: what came since is as young.
            let sql = format!(
                "INSERT INTO pins (id, layer, reason, created_at, worker, epoch)
                 SELECT $1 || '.' || id, id, 'backup', {}, $2, $3 FROM {table}",
                self.now()
            );
            sqlx::query(sqlx::AssertSqlSafe(sql))
                .bind(&pin.id)
                .bind(&me.id)
                .bind(me.epoch)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(Some(pin))
    }

    /// Ids of the living agents whose files or earlier states rest on this layer.
    pub async fn agents_on_layer(&self, layer: &LayerId) -> Result<Vec<AgentId>, DbError> {
        self.agents_on(
            "SELECT id FROM snapshots WHERE layer = $1
             UNION SELECT snapshot FROM merges WHERE layer = $1",
            layer.as_str(),
        )
        .await
    }

    /// Ids of the living agents that were made on this base.
    pub async fn agents_on_base(&self, base: &BaseId) -> Result<Vec<AgentId>, DbError> {
        self.agents_on("SELECT id FROM snapshots WHERE base = $1", base.as_str())
            .await
    }

    async fn agents_on(&self, states: &str, id: &str) -> Result<Vec<AgentId>, DbError> {
        let sql = format!(
            "WITH RECURSIVE hit (id) AS (
               {states} UNION SELECT s.id FROM hit h JOIN snapshots s ON s.parent = h.id
             ) SELECT id FROM agents WHERE removed_at IS NULL AND (base = $1
                 OR head IN (SELECT id FROM hit)
                 OR id IN (SELECT s.agent FROM snapshots s JOIN hit h ON h.id = s.id)) ORDER BY id"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(id)
            .fetch_all(self.reader())
            .await?;
        ids("agents", &rows)
    }

    /// All layers with the sizes their rows tell.
    pub async fn layer_sizes(&self) -> Result<Vec<(LayerId, crate::snapshot::LayerSize)>, DbError> {
        let rows = sqlx::query("SELECT id, bytes, inodes FROM layers ORDER BY id")
            .fetch_all(self.reader())
            .await?;
        rows.iter()
            .map(|row| {
                let id: String = row.try_get(0)?;
                let size = crate::snapshot::LayerSize {
                    bytes: row.try_get::<i64, _>(1)? as u64,
                    inodes: row.try_get::<i64, _>(2)? as u64,
                };
                Ok((parse("layers", &id, "id", &id)?, size))
            })
            .collect()
    }

    /// All bases whose folder is kept.
    pub async fn kept_bases(&self) -> Result<Vec<BaseId>, DbError> {
        let texts = column(&mut *self.reader().acquire().await?, BASES).await?;
        parsed("bases", texts)
    }

    /// How many agents live.
    pub async fn count_agents(&self) -> Result<u64, DbError> {
        let row = sqlx::query("SELECT count(*) FROM agents WHERE removed_at IS NULL")
            .fetch_one(self.reader())
            .await?;
        Ok(row.try_get::<i64, _>(0)? as u64)
    }
}

impl Named {
    /// Of a database that nobody writes to; nothing is changed in or beside it.
    pub async fn read(path: &Path) -> Result<Named, DbError> {
        let connection = &mut quiet(path).await?;
        let ticks = sqlx::query("SELECT agent, id FROM ticks ORDER BY id")
            .fetch_all(&mut *connection)
            .await?;
        let ticks = ticks.iter().map(|row| {
            let (agent, id): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            Ok((
                parse("ticks", &id, "agent", &agent)?,
                parse("ticks", &id, "id", &id)?,
            ))
        });
        let ticks = ticks.collect::<Result<_, DbError>>()?;
        let images = sqlx::query(
            "SELECT image, created_at, registry FROM bases
              WHERE image IN (SELECT image FROM agents WHERE removed_at IS NULL) ORDER BY image",
        )
        .fetch_all(&mut *connection)
        .await?;
        let images = images.iter().map(|row| {
            Ok(ImageInUse {
                id: row.try_get(0)?,
                since: row.try_get(1)?,
                registry: row.try_get(2)?,
            })
        });
        let blobs = "SELECT blob FROM delivery_files UNION SELECT blob FROM message_files
             UNION SELECT blob FROM parts WHERE blob IS NOT NULL
             UNION SELECT blob FROM buttons WHERE blob IS NOT NULL ORDER BY blob";
        Ok(Named {
            layers: parsed("layers", column(connection, LAYERS).await?)?,
            bases: parsed("bases", column(connection, BASES).await?)?,
            ticks,
            blobs: parsed("delivery_files", column(connection, blobs).await?)?,
            images: images.collect::<Result<_, DbError>>()?,
        })
    }
}

const LAYERS: &str = "SELECT id FROM layers ORDER BY id";
const BASES: &str = "SELECT id FROM bases WHERE gone = 0 ORDER BY id";

/// What is wrong with a database that somebody brings, if anything: pages that do not fit together,
/// a program hidden in its schema, an agent that would be root.
pub async fn judge(path: &Path) -> Result<Option<String>, DbError> {
    let mut connection = quiet(path).await?;
    let told = column(&mut connection, "PRAGMA integrity_check(1)").await?;
    if told != ["ok"] {
        return Ok(Some(told.join("; ")));
    }
    let orphans = sqlx::query("PRAGMA foreign_key_check")
        .fetch_all(&mut connection)
        .await?;
    if !orphans.is_empty() {
        return Ok(Some(format!(
            "{} rows name rows that are not there",
            orphans.len()
        )));
    }
    let odd = "SELECT name FROM sqlite_master WHERE type NOT IN ('table', 'index')
                  OR sql LIKE 'CREATE VIRTUAL%'";
    if let Some(name) = column(&mut connection, odd).await?.first() {
        return Ok(Some(format!("it has a trigger or view \"{name}\"")));
    }
    let root = "SELECT id FROM bases WHERE uid <= 0 OR gid < 0";
    let found = column(&mut connection, root).await?;
    Ok(found
        .first()
        .map(|base| format!("base {base} names user 0")))
}

/// A copy that fits together, whatever others write meanwhile.
pub(super) async fn vacuum_into(
    connection: &mut AnyConnection,
    path: &Path,
) -> Result<(), sqlx::Error> {
    let path = path.to_str().ok_or_else(|| {
        sqlx::Error::Io(io::Error::other(format!("{} is not UTF-8", path.display())))
    })?;
    sqlx::query("VACUUM INTO $1")
        .bind(path)
        .execute(connection)
        .await?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(())
}

async fn quiet(path: &Path) -> Result<AnyConnection, DbError> {
    install_default_drivers();
    let url = format!("sqlite://{}?mode=ro&immutable=true", path.display());
    AnyConnection::connect(&url)
        .await
        .map_err(|error| DbError::Open {
            path: path.display().to_string(),
            reason: reason(&error),
        })
}

fn texts<T>(ids: &[T], text: impl Fn(&T) -> &str) -> Vec<&str> {
    ids.iter().map(text).collect()
}

fn parsed<T: std::str::FromStr>(
    table: &'static str,
    texts: Vec<String>,
) -> Result<Vec<T>, DbError> {
    let ids = texts.iter().map(|text| parse(table, text, "id", text));
    ids.collect()
}

async fn column(connection: &mut AnyConnection, sql: &'static str) -> Result<Vec<String>, DbError> {
    let rows = sqlx::query(sql).fetch_all(connection).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Keeps a copy of a database that this version is about to change, beside it, under this version's
/// name. A new database, or one that is up to date, needs none.
pub(super) async fn keep_before_upgrade(
    connection: &mut AnyConnection,
    path: &Path,
    newest: i64,
) -> Result<(), sqlx::Error> {
    let made = "SELECT count(*) FROM sqlite_master WHERE name = '_sqlx_migrations'";
    let made: i64 = sqlx::query(made)
        .fetch_one(&mut *connection)
        .await?
        .try_get(0)?;
    if made == 0 {
        return Ok(());
    }
    let applied: i64 = sqlx::query("SELECT COALESCE(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(&mut *connection)
        .await?
        .try_get(0)?;
    if applied == 0 || applied >= newest {
        return Ok(());
    }
    let kept = before(path, env!("CARGO_PKG_VERSION"));
    let aside = before(path, "part");
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    vacuum_into(connection, &aside).await?;
    put_in_place(&aside, &kept)?;
    tracing::info!(kept = %kept.display(), "the database is upgraded: this is how it was before");
    Ok(())
}

/// A crash leaves a whole copy or none.
pub(super) fn put_in_place(aside: &Path, kept: &Path) -> io::Result<()> {
    File::open(aside)?.sync_all()?;
    std::fs::rename(aside, kept)?;
    File::open(kept.parent().unwrap_or(kept))?.sync_all()
}

/// The copy made by the first upgrade beyond a version.
pub(super) fn kept_before(path: &Path, ours: &str) -> Option<PathBuf> {
    let numbers = |version: &str| -> Option<Vec<u64>> {
        let parts = version.split('.').map(|part| part.parse().ok());
        parts.collect()
    };
    let prefix = format!("{}.before-", path.file_name()?.to_str()?);
    let entries = std::fs::read_dir(path.parent()?).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let versions = names.filter_map(|name| numbers(name.strip_prefix(&prefix)?));
    let first = versions
        .filter(|version| Some(version) > numbers(ours).as_ref())
        .min()?;
    let version: Vec<String> = first.iter().map(u64::to_string).collect();
    Some(before(path, &version.join(".")))
}

pub(super) fn before(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".before-{what}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::{super::Place, *};

    #[tokio::test]
    async fn an_older_database_is_kept_before_it_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mayfly.db");
        let place = Place::Embedded(path.clone());
        Db::open(&place).await.unwrap().close().await;
        let kept = before(&path, env!("CARGO_PKG_VERSION"));
        assert!(!kept.exists(), "a new one needs none");
        let url = format!("sqlite://{}?mode=rw", path.display());
        let mut connection = AnyConnection::connect(&url).await.unwrap();
        keep_before_upgrade(&mut connection, &path, i64::MAX)
            .await
            .unwrap();
        let named = Named::read(&kept).await.unwrap();
        assert!(named.layers.is_empty());
        assert_eq!(kept_before(&path, "0.0.1"), Some(kept));
        assert_eq!(kept_before(&path, env!("CARGO_PKG_VERSION")), None);
        assert_eq!(judge(&path).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_database_with_a_program_in_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mayfly.db");
        let db = Db::open(&Place::Embedded(path.clone())).await.unwrap();
        let trigger = "CREATE TRIGGER t AFTER INSERT ON agents BEGIN DELETE FROM agents; END";
        sqlx::query(trigger).execute(&db.write).await.unwrap();
        db.close().await;
        assert!(judge(&path).await.unwrap().unwrap().contains("trigger"));
    }
}
