//! Where the rows are: a file of the data dir, or a database on a PostgreSQL server.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use url::Url;

/// See the module.
#[derive(Debug, Clone)]
pub enum Place {
    /// An SQLite file.
    Embedded(PathBuf),
    /// A database on a server.
    Postgres(Server),
}

impl Place {
    /// The file of a data dir.
    pub fn embedded(data_dir: &Path) -> Place {
        Place::Embedded(data_dir.join("mayfly.db"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Embedded(path) => path.display().fmt(f),
            Place::Postgres(server) => server.fmt(f),
        }
    }
}

/// A database on a PostgreSQL server. It is shown without its password.
#[derive(Clone)]
pub struct Server {
    /// Without the password.
    url: Url,
    password: Option<String>,
    /// Without the extension that says which version it was before.
    kept: PathBuf,
    backed_up: Option<String>,
}

impl Server {
    /// From `postgres://USER@HOST:PORT/DATABASE`, and the password beside it. The error is a sentence
    /// that does not hold the address.
    pub fn parse(url: &str, password: Option<&str>) -> Result<Server, String> {
        let like = "write it as postgres://USER@HOST:PORT/DATABASE";
        let mut url = Url::parse(url).map_err(|error| format!("no address ({error}): {like}"))?;
        if !["postgres", "postgresql"].contains(&url.scheme()) {
            return Err(format!("{}:// is not known here: {like}", url.scheme()));
        }
        if url.path().trim_start_matches('/').is_empty() {
            return Err(format!("it names no database: {like}"));
        }
        let written = part(&mut url);
        Ok(Server {
            url,
            password: password.map(str::to_owned).or(written),
            kept: PathBuf::from("postgres"),
            backed_up: None,
        })
    }

    /// Copies made before an upgrade lie in this folder; none is made for an upgrade to the version
    /// `backed_up`, of which a person says that a backup exists.
    pub fn with_copies_in(mut self, folder: &Path, backed_up: Option<&str>) -> Server {
        self.kept = folder.join("postgres.dump");
        self.backed_up = backed_up.map(str::to_owned);
        self
    }

    /// The password, where there is one.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The address without the password.
    pub fn shown(&self) -> String {
        self.url.to_string()
    }

    /// Who asks.
    pub(super) fn user(&self) -> String {
        self.url.username().to_owned()
    }

    /// Which database.
    pub(super) fn database(&self) -> &str {
        self.url.path().trim_start_matches('/')
    }

    /// Host and port, or the folder of the socket.
    pub(super) fn host(&self) -> String {
        let asked = |name| {
            let mut pairs = self.url.query_pairs();
            pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
        };
        let named = self.url.host_str().filter(|host| !host.is_empty());
        let host = named.map(str::to_owned).or_else(|| asked("host"));
        let host = host.unwrap_or_else(|| "localhost".to_owned());
        match self
            .url
            .port()
            .map(|port| port.to_string())
            .or(asked("port"))
        {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// What the driver takes, with the password.
    pub(super) fn connect_url(&self) -> String {
        let mut url = self.url.clone();
        if let Some(password) = &self.password {
            url.query_pairs_mut().append_pair("password", password);
        }
        if !url.query_pairs().any(|(key, _)| key == "application_name") {
            url.query_pairs_mut()
                .append_pair("application_name", "mayfly");
        }
        url.to_string()
    }

    /// Where a copy made before an upgrade lies, without its version.
    pub(super) fn kept(&self) -> &Path {
        &self.kept
    }

    /// See [`Server::with_copies_in`].
    pub(super) fn backed_up(&self) -> Option<&str> {
        self.backed_up.as_deref()
    }
}

/// Takes the password out of an address: it stands before the host, or, where there is none, in the query.
fn part(url: &mut Url) -> Option<String> {
    let decoded = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8_lossy()
            .into_owned()
    };
    let before = url.password().map(decoded);
    let _ = url.set_password(None);
    let (secret, rest): (Vec<_>, Vec<_>) = url
        .query_pairs()
        .into_owned()
        .partition(|(key, _)| key == "password");
    if secret.is_empty() {
        return before;
    }
    url.set_query(None);
    if !rest.is_empty() {
        url.query_pairs_mut().extend_pairs(rest);
    }
    secret.into_iter().next().map(|(_, password)| password)
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.shown()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_used_and_never_shown() {
        let server =
            Server::parse("postgres://me@db.example:5433/mayfly", Some("p@ss/w:rd")).unwrap();
        assert!(server.connect_url().contains("password=p%40ss%2Fw%3Ard"));
        assert_eq!(server.password(), Some("p@ss/w:rd"));
        for (url, beside, is) in [
            ("postgres://me:50%2541@h/d", None, "50%41"),
            ("postgres://me@h/d", Some("50%41"), "50%41"),
            (
                "postgres:///d?host=/run&user=me&password=hid%20den",
                None,
                "hid den",
            ),
            ("postgres:///d?host=/run&user=me", Some("hidden"), "hidden"),
        ] {
            let server = Server::parse(url, beside).unwrap();
            assert_eq!(server.password(), Some(is));
            assert!(!server.shown().contains("hid") && !server.shown().contains("50"));
            let url = Url::parse(&server.connect_url()).unwrap();
            assert!(
                url.query_pairs()
                    .any(|pair| pair == ("password".into(), is.into()))
            );
        }
        for shown in [format!("{server}"), format!("{server:?}"), server.host()] {
            assert!(
                !shown.contains("ss%2Fw") && !shown.contains("p@ss"),
                "{shown}"
            );
        }
        assert_eq!(server.host(), "db.example:5433");
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        for (bad, why) in [
            ("mysql://u:hidden@h/d", "mysql:// is not known"),
            ("hidden", "no address"),
            ("postgres://u:hidden@h", "names no database"),
        ] {
            let told = Server::parse(bad, None).unwrap_err();
            assert!(told.contains(why) && !told.contains("hidden"), "{told}");
        }
    }

    #[test]
    fn a_socket_is_named_by_its_folder() {
        let server =
            Server::parse("postgres:///mayfly?host=/run/postgresql&user=me", None).unwrap();
        assert_eq!(server.host(), "/run/postgresql");
        assert_eq!(server.database(), "mayfly");
    }
}
