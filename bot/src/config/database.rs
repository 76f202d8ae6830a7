//! `[database]`: where the rows are.

use std::path::Path;

use mayfly_orchestrator::db::{Place, Server};
use serde::{Deserialize, Serialize};

/// See the module. Empty: a file of the data dir.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseSection {
    /// `postgres://USER@HOST:PORT/DATABASE`; nothing for the file.
    pub url: String,
    /// Only from the environment.
    pub password: String,
    /// Holds the password and nothing else.
    pub password_file: String,
    /// The version to which the database may be upgraded without a backup of ours.
    pub backed_up: String,
}

impl DatabaseSection {
    /// Where the rows are. The error is one sentence without the password.
    pub fn place(&self, data_dir: &Path) -> Result<Place, String> {
        if self.url.is_empty() {
            return Ok(Place::embedded(data_dir));
        }
        let server = Server::parse(&self.url, self.secret()?.as_deref())?;
        let backed_up = Some(self.backed_up.as_str()).filter(|version| !version.is_empty());
        Ok(Place::Postgres(server.with_copies_in(data_dir, backed_up)))
    }

    /// Takes the password out of the address.
    pub(super) fn part(&mut self) {
        let Ok(server) = Server::parse(&self.url, None) else {
            return;
        };
        if let Some(password) = server.password() {
            if self.password.is_empty() {
                self.password = password.to_owned();
            }
            self.url = server.shown();
        }
    }

    fn secret(&self) -> Result<Option<String>, String> {
        if !self.password.is_empty() {
            return Ok(Some(self.password.clone()));
        }
        if self.password_file.is_empty() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(&self.password_file);
        let text =
            text.map_err(|error| format!("password_file {}: {error}", self.password_file))?;
        Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
    }
}
