//! What is owed reaches its thread: tried again with back-off, parked where that cannot help.

use std::{collections::HashMap, sync::Arc, time::Duration};

use mayfly_domain::{DeliverError, Platform};

use crate::{
    bell::Bell,
    clock,
    db::{Db, DbError, deliveries::Owed},
    faults, observe,
    supervise::Supervisor,
};

/// Longest wait between two looks for something owed.
const POLL: Duration = Duration::from_secs(2);
/// Deliveries read at once.
const BATCH: i64 = 50;

/// Platforms by the name in their threads' keys.
pub type Platforms = HashMap<&'static str, Arc<dyn Platform>>;

/// Delivers until the process comes to rest.
pub async fn serve(
    db: Db,
    platforms: Platforms,
    bell: Bell,
    supervisor: Supervisor,
) -> Result<(), DbError> {
    let stopping = supervisor.stopping();
    while !stopping.is_cancelled() {
        let found = bell.until(POLL, || async {
            let owed = db.owed(BATCH).await?;
            Ok::<_, DbError>((!owed.is_empty()).then_some(owed))
        });
        let Some(found) = stopping.run_until_cancelled(found).await else {
            break;
        };
        let owed = match found {
            Ok(owed) => owed.unwrap_or_default(),
            Err(error) => {
                tracing::error!(error = observe::chain(&error), "outbox not readable");
                tokio::time::sleep(POLL).await;
                continue;
            }
        };
        for delivery in owed {
            if let Err(error) = deliver(&db, &platforms, &delivery).await {
                tracing::error!(error = observe::chain(&error), "delivery not recorded");
                tokio::time::sleep(POLL).await;
            }
        }
    }
    Ok(())
}

async fn deliver(db: &Db, platforms: &Platforms, owed: &Owed) -> Result<(), DbError> {
    faults::point("deliver.before");
    let done = match platforms.get(owed.thread.platform.as_str()) {
        Some(platform) => platform.deliver(&owed.thread, owed.id, &owed.reply).await,
        None => Err(DeliverError::Permanent(format!(
            "the configuration has no platform \"{}\"",
            owed.thread.platform
        ))),
    };
    faults::point("deliver.after");
    match done {
        Ok(platform_id) => {
            db.delivered(owed.id, &platform_id).await?;
            faults::point("deliver.recorded");
            Ok(())
        }
        Err(error @ DeliverError::Transient(_)) => {
            let pause = 1000 << owed.attempts.min(8);
            db.delivery_failed(owed.id, &error.to_string(), Some(clock::unix_ms() + pause))
                .await
        }
        Err(error @ DeliverError::Permanent(_)) => {
            tracing::warn!(delivery = %owed.id, %error, "delivery parked");
            db.delivery_failed(owed.id, &error.to_string(), None).await
        }
    }
}
