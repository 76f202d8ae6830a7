//! What several processes share: PostgreSQL, Redis and the layer store, each asked live. Nothing is changed, and
//! no secret is told.

use mayfly_orchestrator::{
    db::{Place, postgres},
    depot::{DepotError, Objects},
    queue::redis,
    trouble::Trouble,
};

use super::{Check, State};
use crate::config::Config;

const POSTGRES: &str = "PostgreSQL";
const REDIS: &str = "Redis";
const STORE: &str = "layer store";

pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let (rows, marked) = database(config).await;
    let mut all = rows;
    if !config.queue.url.is_empty() {
        all.extend(queue(&config.queue.url).await);
    }
    if config.store.is_on() {
        all.push(store(config, marked).await);
    }
    all
}

/// Also what the layer store's mark has to say.
async fn database(config: &Config) -> (Vec<Check>, Option<(String, bool)>) {
    let server = match config.database.place(&config.data_dir) {
        Ok(Place::Embedded(_)) => return (Vec::new(), None),
        Ok(Place::Postgres(server)) => server,
        Err(fault) => {
            return (
                vec![refused(POSTGRES, &fault, "correct database.url")],
                None,
            );
        }
    };
    let seen = match postgres::inspect(&server).await {
        Ok(seen) => seen,
        Err(error) => {
            let told = refused(POSTGRES, &error.to_string(), "correct database.url");
            return (vec![told], None);
        }
    };
    let tables = match (seen.done, seen.pending) {
        (0, _) => "empty: the first start makes its tables".to_owned(),
        (_, 0) => "its tables are up to date".to_owned(),
        (_, pending) => {
            format!("the next start changes its tables ({pending} migrations) after a backup")
        }
    };
    let found = format!(
        "{} at {}, database \"{}\" takes writes, {tables}",
        seen.version, seen.at, seen.database
    );
    let mut all = vec![Check::ok(POSTGRES, found)];
    if !seen.fsync {
        let mend = "set fsync = on in postgresql.conf and restart it";
        all.push(Check::not(State::Warn, POSTGRES, postgres::NO_FSYNC, mend));
    }
    (all, seen.store)
}

async fn queue(url: &str) -> Vec<Check> {
    let seen = match redis::inspect(url).await {
        Ok(seen) => seen,
        Err(error) => return vec![refused(REDIS, &error.to_string(), "correct queue.url")],
    };
    let mut all = vec![Check::ok(REDIS, format!("{} at {}", seen.version, seen.at))];
    if seen.policy != "noeviction" {
        // Without a limit nothing is thrown away yet.
        let state = match seen.most_memory {
            0 => State::Advice,
            _ => State::Warn,
        };
        all.push(Check::not(
            state,
            REDIS,
            format!(
                "maxmemory-policy is {}: short of memory it throws keys away, and lanes wait until they are told again",
                seen.policy
            ),
            "set maxmemory-policy noeviction in redis.conf",
        ));
    }
    if !seen.append_only {
        all.push(Check::not(
            State::Advice,
            REDIS,
            "it is empty after a restart: nothing is lost, and lanes wait some seconds until they are told again",
            "set appendonly yes in redis.conf",
        ));
    }
    all
}

async fn store(config: &Config, marked: Option<(String, bool)>) -> Check {
    let mend = "correct store.url";
    let objects = match Objects::open(&config.store, &Trouble::default()) {
        Ok(Some(objects)) => objects,
        Ok(None) => return Check::ok(STORE, "none"),
        Err(fault) => return Check::not(State::Fail, STORE, fault, mend),
    };
    let known = marked.is_some();
    let (id, in_use) = marked.unwrap_or_default();
    // Said to be in use, so that one without a mark gets none from here.
    match objects.look(&id, true).await {
        Ok(()) => Check::ok(STORE, format!("{} answers and is ours", objects.shown())),
        Err(DepotError::Away { reason, .. }) if reason.starts_with("is empty") && !in_use => {
            let found = format!(
                "{} answers: the first start marks it as ours",
                objects.shown()
            );
            Check::ok(STORE, found)
        }
        // Whose it has to be is written in the rows, which were not read.
        Err(DepotError::Away { reason, .. })
            if reason.starts_with("belongs to another") && !known =>
        {
            let found = format!("{} answers and has a mark", objects.shown());
            Check::ok(STORE, found)
        }
        Err(error) => refused(STORE, &error.to_string(), mend),
    }
}

/// Sentences end with their way out.
fn refused(name: &'static str, sentence: &str, otherwise: &str) -> Check {
    let parts = sentence.rsplit_once(": ");
    // Else it stands within what somebody said.
    let parts = parts.filter(|(_, mend)| !mend.contains(')'));
    let (found, mend) = parts.unwrap_or((sentence, otherwise));
    Check::not(State::Fail, name, found, mend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_out_is_told_apart_from_what_was_found() {
        let told = refused(REDIS, "no Redis at a:1 (io: refused): start it", "else");
        assert_eq!(told.found, "no Redis at a:1 (io: refused)");
        assert_eq!(told.mend.as_deref(), Some("start it"));
        for plain in ["nothing", "it says no (because: of that)"] {
            let told = refused(REDIS, plain, "else");
            assert_eq!(
                (told.found.as_str(), told.mend.as_deref()),
                (plain, Some("else"))
            );
        }
    }
}
