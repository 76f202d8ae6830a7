//! What of one owner is on the engine, in any state.

use std::collections::HashMap;

use bollard::query_parameters::{ListContainersOptionsBuilder, ListVolumesOptionsBuilder};

use super::{Docker, INSTALLATION_LABEL, WORKER_LABEL};
use crate::sandbox::{BackendError, Found, Names, Owner};

impl Docker {
    /// Label and name prefix both, so that a label copied by somebody else is not enough.
    pub(super) async fn list(&self, owner: &Owner) -> Result<Vec<Found>, BackendError> {
        let client = self.client().await?;
        let label = format!("{INSTALLATION_LABEL}={}", owner.installation);
        let filters = HashMap::from([("label".to_owned(), vec![label.clone()])]);
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters);
        let containers = match client.list_containers(Some(options.build())).await {
            Ok(containers) => containers,
            Err(error) => return Err(self.failed(error, "list containers of", &label).await),
        };
        let options = ListVolumesOptionsBuilder::new().filters(&filters);
        let volumes = match client.list_volumes(Some(options.build())).await {
            Ok(volumes) => volumes.volumes.unwrap_or_default(),
            Err(error) => return Err(self.failed(error, "list volumes of", &label).await),
        };
        let prefix = Names::prefix(owner.installation);
        let containers = containers
            .into_iter()
            .filter(|container| is_of(owner, container.labels.as_ref()))
            .flat_map(|container| container.names.unwrap_or_default())
            .map(|name| name.trim_start_matches('/').to_owned())
            .filter(|name| name.starts_with(&prefix))
            .map(Found::Container);
        let volumes = volumes
            .into_iter()
            .filter(|volume| is_of(owner, Some(&volume.labels)))
            .map(|volume| volume.name)
            .filter(|name| name.starts_with(&prefix))
            .map(Found::Volume);
        Ok(containers.chain(volumes).collect())
    }
}

/// What was made before workers had a label has none.
fn is_of(owner: &Owner, labels: Option<&HashMap<String, String>>) -> bool {
    let worker = labels.and_then(|labels| labels.get(WORKER_LABEL));
    worker.is_none_or(|worker| *worker == owner.worker)
}
