//! What of this installation is on the engine, in any state.

use std::collections::HashMap;

use bollard::query_parameters::{ListContainersOptionsBuilder, ListVolumesOptionsBuilder};
use mayfly_domain::InstallationId;

use super::{Docker, INSTALLATION_LABEL};
use crate::sandbox::{BackendError, Found, Names};

impl Docker {
    /// Label and name prefix both, so that a label copied by somebody else is not enough.
    pub(super) async fn list(
        &self,
        installation: InstallationId,
    ) -> Result<Vec<Found>, BackendError> {
        let client = self.client().await?;
        let label = format!("{INSTALLATION_LABEL}={installation}");
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
        let prefix = Names::prefix(installation);
        let containers = containers
            .into_iter()
            .flat_map(|container| container.names.unwrap_or_default())
            .map(|name| name.trim_start_matches('/').to_owned())
            .filter(|name| name.starts_with(&prefix))
            .map(Found::Container);
        let volumes = volumes
            .into_iter()
            .map(|volume| volume.name)
            .filter(|name| name.starts_with(&prefix))
            .map(Found::Volume);
        Ok(containers.chain(volumes).collect())
    }
}
