//! `[store]`: where layers, files and transcripts go that several workers share.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use url::Url;

/// See the module. Without an address everything is local.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// `s3://BUCKET/PREFIX`, or `file:///PATH` of a folder that all workers share.
    pub url: String,
    /// Of a server that speaks S3, `https://HOST:PORT`; Amazon's if empty.
    pub endpoint: String,
    /// Of the bucket.
    pub region: String,
    /// The key's id; without one the machine's own role is asked for.
    pub access_key_id: String,
    /// Only from the environment.
    pub secret_access_key: String,
    /// Holds the secret key and nothing else.
    pub secret_access_key_file: String,
    /// Mebibytes of layers that stay on this worker's disk though they are in the store.
    pub cache_mib: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            url: String::new(),
            endpoint: String::new(),
            region: "us-east-1".to_owned(),
            access_key_id: String::new(),
            secret_access_key: String::new(),
            secret_access_key_file: String::new(),
            cache_mib: 20 * 1024,
        }
    }
}

/// What an address names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Bucket { bucket: String, prefix: String },
    Folder(PathBuf),
}

impl StoreConfig {
    /// Whether there is a store.
    pub fn is_on(&self) -> bool {
        !self.url.is_empty()
    }

    /// What is wrong with it, in one sentence each, by key.
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        if !self.is_on() {
            let others = [
                &self.endpoint,
                &self.access_key_id,
                &self.secret_access_key,
                &self.secret_access_key_file,
            ];
            return match others.iter().all(|other| other.is_empty()) {
                true => Vec::new(),
                false => vec![(
                    "url",
                    "an address is wanted where an endpoint or a key is given: without one everything stays in data_dir"
                        .to_owned(),
                )],
            };
        }
        let mut faults = Vec::new();
        match self.place() {
            Err(fault) => faults.push(("url", fault)),
            Ok(Place::Folder(_)) => {}
            Ok(Place::Bucket { .. }) => {
                let key = !self.secret_access_key.is_empty();
                let key = key || !self.secret_access_key_file.is_empty();
                if key == self.access_key_id.is_empty() {
                    let fault = "an id and its secret key belong together: set both, or neither \
                                 for the machine's own role";
                    faults.push(("access_key_id", fault.to_owned()));
                }
                if self.region.is_empty() {
                    faults.push(("region", "a region is wanted, us-east-1 if any".to_owned()));
                }
                if let Err(fault) = self.secret() {
                    faults.push(("secret_access_key_file", fault));
                }
                let http = ["http://", "https://"];
                let good = |endpoint: &str| {
                    http.iter().any(|scheme| endpoint.starts_with(scheme))
                        && !endpoint.contains('@')
                };
                if !self.endpoint.is_empty() && !good(&self.endpoint) {
                    // It may hold a password.
                    let fault = "this is not of the form https://HOST:PORT";
                    faults.push(("endpoint", fault.to_owned()));
                }
            }
        }
        faults
    }

    pub(super) fn place(&self) -> Result<Place, String> {
        // It may hold a password.
        let wrong = || "this is neither s3://BUCKET/PREFIX nor file:///PATH".to_owned();
        let url = Url::parse(&self.url).map_err(|_| wrong())?;
        let plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        match (url.scheme(), url.host_str()) {
            ("s3", Some(bucket)) if plain && url.port().is_none() => Ok(Place::Bucket {
                bucket: bucket.to_owned(),
                prefix: url.path().trim_matches('/').to_owned(),
            }),
            ("file", None) if plain && url.path().len() > 1 => match url.to_file_path() {
                Ok(path) => Ok(Place::Folder(path)),
                Err(()) => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }

    pub(super) fn secret(&self) -> Result<String, String> {
        if !self.secret_access_key.is_empty() || self.secret_access_key_file.is_empty() {
            return Ok(self.secret_access_key.clone());
        }
        let path = &self.secret_access_key_file;
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(text.trim_end_matches(['\n', '\r']).to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> Result<Place, String> {
        let config = StoreConfig {
            url: url.to_owned(),
            ..StoreConfig::default()
        };
        config.place()
    }

    #[test]
    fn an_address_names_a_bucket_or_a_folder() {
        let bucket = |bucket: &str, prefix: &str| {
            Ok(Place::Bucket {
                bucket: bucket.to_owned(),
                prefix: prefix.to_owned(),
            })
        };
        assert_eq!(at("s3://b/a/c/"), bucket("b", "a/c"));
        assert_eq!(at("s3://b"), bucket("b", ""));
        assert_eq!(at("file:///srv/x"), Ok(Place::Folder("/srv/x".into())));
        for wrong in [
            "/srv/x",
            "file://host/x",
            "file:///",
            "s3:///x",
            "s3://me:pw@b",
            "s3://b?x=1",
            "gs://b",
        ] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }
}
