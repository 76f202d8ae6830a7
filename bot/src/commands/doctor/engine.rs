//! The container engine: whether it answers, and what of it we rely on.

use std::collections::{BTreeSet, HashMap};

use bollard::{
    Docker as Client,
    models::{SystemInfo, SystemVersion},
    query_parameters::ListContainersOptionsBuilder,
};
use mayfly_orchestrator::{
    clock::Lease,
    sandbox::{
        Backend,
        docker::{Docker, DockerOptions, INSTALLATION_LABEL},
    },
    supervise::Supervisor,
};

use super::{Check, State, setup};
use crate::config::Config;

/// First releases of runc without CVE-2025-31133, -52565 and -52881, by minor version.
const RUNC_FLOORS: [[u64; 3]; 2] = [[1, 2, 8], [1, 3, 3]];

pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let backend = Docker::new(DockerOptions {
        host: Some(config.docker.host.clone()),
        supervisor: Supervisor::default(),
        lease: Lease::default(),
    });
    let engine = match backend.engine().await {
        Ok(engine) => engine,
        Err(error) => {
            return vec![Check::not(
                State::Fail,
                "docker",
                chain(&error),
                "start it (systemctl start docker), name it with docker.host or DOCKER_HOST, or \
                 run mayfly as root if it may not be asked",
            )];
        }
    };
    let mut checks = vec![Check::ok("docker", format!("version {}", engine.version))];
    match described(config).await {
        Ok((info, version)) => {
            checks.extend(setup::checks(&info));
            checks.push(live_restore(info.live_restore_enabled == Some(true)));
            checks.push(runc(&runc_version(&version)));
            checks.extend(runtimes(config, &info));
            let warnings = info.warnings.iter().flatten();
            checks.extend(warnings.filter_map(|warning| other_warning(warning)));
        }
        Err(error) => checks.push(Check::not(
            State::Warn,
            "docker",
            format!("it does not describe itself: {error}"),
            "look at docker info",
        )),
    }
    let references: BTreeSet<_> = config
        .profiles
        .0
        .values()
        .map(|profile| profile.sandbox.to_string())
        .collect();
    for reference in references {
        checks.push(image(&backend, &reference).await);
    }
    checks
}

async fn client(config: &Config) -> Result<Client, bollard::errors::Error> {
    Client::connect_with_host(&config.docker.host)?
        .negotiate_version()
        .await
}

async fn described(config: &Config) -> Result<(SystemInfo, SystemVersion), bollard::errors::Error> {
    let client = client(config).await?;
    Ok((client.info().await?, client.version().await?))
}

fn live_restore(on: bool) -> Check {
    match on {
        false => Check::ok("live-restore", "off"),
        true => Check::not(
            State::Warn,
            "live-restore",
            "on: after a restart of the daemon some volumes of running ticks stay until the next",
            "set \"live-restore\": false in /etc/docker/daemon.json",
        ),
    }
}

fn runc_version(version: &SystemVersion) -> String {
    let parts = version.components.iter().flatten();
    let mut runc = parts.filter(|part| part.name == "runc");
    runc.next()
        .map(|part| part.version.clone())
        .unwrap_or_default()
}

fn runc(version: &str) -> Check {
    let found = format!(
        "runc {}",
        if version.is_empty() {
            "of unknown version"
        } else {
            version
        }
    );
    match patched(version) {
        true => Check::ok("runc", found),
        false => Check::not(
            State::Warn,
            "runc",
            format!("{found}: known escapes by mounts (CVE-2025-31133, -52565, -52881)"),
            "update runc to 1.2.8, 1.3.3 or later; a distribution may have patched an older one",
        ),
    }
}

/// Whether a version, whatever follows its three numbers, is at or over the floor of its minor.
fn patched(version: &str) -> bool {
    let numbers: Vec<u64> = version
        .trim_start_matches('v')
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|part| part.parse().ok())
        .take(3)
        .collect();
    let Ok(numbers) = <[u64; 3]>::try_from(numbers) else {
        return false;
    };
    let floor = RUNC_FLOORS.iter().find(|floor| floor[..2] == numbers[..2]);
    match floor {
        Some(floor) => numbers >= *floor,
        None => numbers > RUNC_FLOORS[1],
    }
}

fn runtimes(config: &Config, info: &SystemInfo) -> Vec<Check> {
    let known = info.runtimes.as_ref();
    let wanted: BTreeSet<&String> = config
        .profiles
        .0
        .values()
        .filter_map(|profile| profile.runtime.as_ref())
        .chain(&config.docker.runtime)
        .collect();
    let judge = |name: &String| match known.is_some_and(|known| known.contains_key(name)) {
        true => Check::ok("runtime", name.clone()),
        false => Check::not(
            State::Fail,
            "runtime",
            format!("the engine has no runtime \"{name}\""),
            format!(
                "add \"{name}\" to \"runtimes\" in /etc/docker/daemon.json, or take it out of mayfly.toml"
            ),
        ),
    };
    wanted.into_iter().map(judge).collect()
}

/// What Docker warns of itself; limits are judged by `setup`.
fn other_warning(warning: &str) -> Option<Check> {
    let found = warning.trim_start_matches("WARNING: ");
    let ours = ["memory limit", "swap limit", "cpu cfs", "pids limit"];
    let lower = found.to_lowercase();
    let judged = ours.iter().any(|part| lower.contains(part));
    (!judged).then(|| Check::not(State::Advice, "docker", found, "see docker info"))
}

async fn image(backend: &Docker, reference: &str) -> Check {
    let parsed = reference.parse().expect("it was printed by its own type");
    match backend.resolve(&parsed).await {
        Ok(image) => Check::ok("image", format!("{reference} is {}", image.id)),
        Err(error) => {
            let mend = match reference.starts_with("docker:mayfly/base") {
                true => "build it with deploy/images/build base",
                false => "pull or build it, or name another in mayfly.toml",
            };
            Check::not(State::Fail, "image", chain(&error), mend)
        }
    }
}

/// Names of containers of any installation here that do not run.
pub(super) async fn leftovers(config: &Config) -> Result<BTreeSet<String>, String> {
    let list = async {
        let filters = HashMap::from([
            ("label".to_owned(), vec![INSTALLATION_LABEL.to_owned()]),
            (
                "status".to_owned(),
                vec!["exited".to_owned(), "dead".to_owned()],
            ),
        ]);
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters);
        client(config)
            .await?
            .list_containers(Some(options.build()))
            .await
    };
    let found = list
        .await
        .map_err(|error: bollard::errors::Error| error.to_string())?;
    let names = found
        .into_iter()
        .flat_map(|container| container.names.unwrap_or_default());
    Ok(names
        .map(|name| name.trim_start_matches('/').to_owned())
        .collect())
}

/// What was there before the tick and after it belongs to no tick that is just ending.
pub(super) fn compare(
    before: Result<BTreeSet<String>, String>,
    after: Result<BTreeSet<String>, String>,
) -> Vec<Check> {
    let (Ok(before), Ok(after)) = (before, after) else {
        // That the engine does not answer was said already.
        return Vec::new();
    };
    let left: Vec<&str> = before.intersection(&after).map(String::as_str).collect();
    vec![match left.as_slice() {
        [] => Check::ok("leftovers", "no dead containers of Mayfly"),
        left => Check::not(
            State::Warn,
            "leftovers",
            format!("dead containers: {}", left.join(", ")),
            "start mayfly serve: it removes its own; those of an installation that is gone with docker rm -v",
        ),
    }]
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_floor_is_told_by_minor_version() {
        for old in [
            "1.1.5+ds1",
            "1.2.7",
            "1.3.2",
            "1.3.0-rc1",
            "",
            "unknown",
            "1.2",
        ] {
            assert!(!patched(old), "{old}");
        }
        for new in ["1.2.8", "1.2.9+dev", "1.3.3", "v1.3.4", "1.4.0", "2.0.0"] {
            assert!(patched(new), "{new}");
        }
    }

    #[test]
    fn only_what_stays_is_a_leftover() {
        let set = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect());
        let one = compare(set(&["a", "b"]), set(&["b", "c"]));
        assert_eq!(one[0].found, "dead containers: b");
        assert_eq!(compare(set(&["a"]), set(&[]))[0].state, State::Ok);
        assert!(compare(Err("down".to_owned()), set(&[])).is_empty());
    }
}
