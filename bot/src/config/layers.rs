//! Lays the layers over the defaults, leaf by leaf, so that one fault hides no other.
//!
//! The defaults are the schema: what they do not hold is unknown, and a leaf is of the right type
//! if the defaults with this leaf in place can be read.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use config::{File, FileFormat, Source as _, Value, ValueKind};
use mayfly_orchestrator::{
    agent::profile::Profile,
    inbox::access::{Audience, ChannelRule},
};
use serde_json::{Map, Value as Json};

use super::{Config, Sources, chats::NAMES};

/// Where a value is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "file {}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// Origins by dotted key; what is absent is a default.
pub(super) type Origins = BTreeMap<String, Origin>;

pub(super) struct Merged {
    pub(super) config: Config,
    pub(super) origins: Origins,
    pub(super) faults: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// Prefix of every name of ours in the environment.
const PREFIX: &str = "MAYFLY__";

pub(super) fn merge(sources: &Sources) -> Merged {
    let mut layers = Layers {
        tree: defaults(),
        origins: Origins::new(),
        faults: Vec::new(),
        warnings: Vec::new(),
    };
    if let Some(host) = sources.variable("DOCKER_HOST") {
        let origin = Origin::Environment("DOCKER_HOST".to_owned());
        layers.leaf(&["docker", "host"], Json::from(host), &origin);
    }
    for (name, key) in NAMES {
        if let Some(token) = sources.variable(name) {
            let origin = Origin::Environment(name.to_owned());
            layers.leaf(&key, Json::from(token), &origin);
        }
    }
    layers.file(sources);
    layers.environment(sources);
    if let Some(path) = &sources.data_dir {
        let value = Json::from(path.to_string_lossy());
        layers.leaf(&["data_dir"], value, &Origin::Flag("--data-dir"));
    }
    if let Some(role) = sources.role {
        let value = Json::from(role.to_string());
        layers.leaf(&["serve", "role"], value, &Origin::Flag("--role"));
    }
    let config = serde_json::from_value(layers.tree).expect("every leaf was tried");
    Merged {
        config,
        origins: layers.origins,
        faults: layers.faults,
        warnings: layers.warnings,
    }
}

fn defaults() -> Json {
    serde_json::to_value(Config::default()).expect("the defaults are plain data")
}

fn default_profile() -> Json {
    serde_json::to_value(Profile::default()).expect("the defaults are plain data")
}

fn default_channel() -> Json {
    serde_json::to_value(ChannelRule::default()).expect("the defaults are plain data")
}

/// What a channel may say: its lists are lists, though by default it has none.
fn channel_schema() -> Json {
    let mut schema = default_channel();
    let lists = serde_json::to_value(Audience::default()).expect("the defaults are plain data");
    for (key, list) in lists.as_object().into_iter().flatten() {
        schema[key] = list.clone();
    }
    schema
}

/// The keys of a variable's name: in small letters, but for names that people chose.
fn keys_of(name: &str) -> Option<Vec<String>> {
    let written: Vec<&str> = name.strip_prefix(PREFIX)?.split("__").collect();
    let mut keys: Vec<String> = written.iter().map(|key| key.to_lowercase()).collect();
    let chosen = match keys.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [_, "channels", _, ..] => Some(2),
        ["profiles", _, "env", _, ..] => Some(3),
        _ => None,
    };
    if let Some(at) = chosen {
        keys[at] = written[at].to_owned();
    }
    Some(keys)
}

/// What may stand at a path.
enum Place {
    /// A table with exactly these keys.
    Table(Vec<String>),
    /// A table whose keys are names that a person chose.
    Named,
    /// A value like this default.
    Leaf(Json),
    Unknown,
}

fn place(path: &[&str]) -> Place {
    let (mut node, rest) = match path {
        ["profiles"] | ["profiles", _, "env"] | [_, "channels"] => return Place::Named,
        ["profiles", _, "env", _] => return Place::Leaf(Json::from("")),
        ["profiles", _, rest @ ..] => (default_profile(), rest),
        ["slack" | "discord" | "telegram", "channels", _, rest @ ..] => (channel_schema(), rest),
        _ => (defaults(), path),
    };
    for key in rest {
        node = match node {
            Json::Object(mut table) => match table.remove(*key) {
                Some(inner) => inner,
                None => return Place::Unknown,
            },
            _ => return Place::Unknown,
        };
    }
    match node {
        Json::Object(table) => Place::Table(table.into_iter().map(|(key, _)| key).collect()),
        leaf => Place::Leaf(leaf),
    }
}

struct Layers {
    tree: Json,
    origins: Origins,
    faults: Vec<String>,
    warnings: Vec<String>,
}

impl Layers {
    fn file(&mut self, sources: &Sources) {
        let found = sources.places.iter().find(|place| place.exists());
        let Some(path) = sources.file.as_ref().or(found) else {
            return;
        };
        let name = path.display();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let fault = format!("cannot read the configuration {name}: {error}");
                return self.faults.push(fault);
            }
        };
        match File::from_str(&text, FileFormat::Toml).collect() {
            Ok(table) => {
                let origin = Origin::File(path.clone());
                self.table(&mut Vec::new(), table, &origin);
            }
            Err(error) => {
                let fault = format!("{name} is not valid TOML: {error}");
                self.faults.push(fault.trim_end().to_owned());
            }
        }
    }

    fn table(&mut self, path: &mut Vec<String>, table: config::Map<String, Value>, at: &Origin) {
        let mut sorted: Vec<_> = table.into_iter().collect();
        sorted.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (key, value) in sorted {
            path.push(key);
            self.value(path, value, at);
            path.pop();
        }
    }

    fn value(&mut self, path: &mut Vec<String>, value: Value, at: &Origin) {
        let keys: Vec<&str> = path.iter().map(String::as_str).collect();
        match (place(&keys), value.kind) {
            (Place::Unknown, _) => self.faults.push(unknown_key(&keys, at)),
            (Place::Leaf(_), kind) => self.leaf(&keys, json(kind), at),
            (_, ValueKind::Table(table)) => {
                match keys[..] {
                    ["profiles", name] => self.profile(name),
                    [platform, "channels", id] => self.channel(platform, id),
                    _ => {}
                }
                self.table(path, table, at)
            }
            _ => self.faults.push(format!(
                "{} ({at}): a table is wanted, write [{}]",
                keys.join("."),
                keys.join(".")
            )),
        }
    }

    fn profile(&mut self, name: &str) {
        let profiles = &mut self.tree["profiles"];
        if profiles.get(name).is_none() {
            profiles[name] = default_profile();
        }
    }

    fn channel(&mut self, platform: &str, id: &str) {
        let channels = &mut self.tree[platform]["channels"];
        if channels.get(id).is_none() {
            channels[id] = default_channel();
        }
    }

    fn environment(&mut self, sources: &Sources) {
        let ours = sources.environment.iter();
        let mut ours: Vec<_> = ours.filter(|(key, _)| key.starts_with("MAYFLY_")).collect();
        ours.sort();
        for (name, text) in ours {
            let keys = keys_of(name).unwrap_or_default();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let Place::Leaf(like) = place(&keys) else {
                self.warnings.push(unknown_variable(name));
                continue;
            };
            // An empty token switches nothing off that another variable switched on.
            if text.is_empty() && is_token(&keys) {
                continue;
            }
            let origin = Origin::Environment(name.clone());
            let value = match like {
                Json::Null => Ok(untold(text, &keys)),
                _ => typed(text, &like),
            };
            match value {
                Ok(value) => {
                    match keys[..] {
                        ["profiles", profile, ..] => self.profile(profile),
                        [platform, "channels", id, ..] => self.channel(platform, id),
                        _ => {}
                    }
                    self.leaf(&keys, value, &origin);
                }
                Err(wanted) => self
                    .faults
                    .push(format!("{} ({origin}): {wanted} is wanted", keys.join("."))),
            }
        }
    }

    /// Puts one value in place if the configuration can be read with it.
    fn leaf(&mut self, path: &[&str], value: Json, at: &Origin) {
        match read_with(path, value.clone()) {
            Ok(_) => {
                put(&mut self.tree, path, value);
                self.origins.insert(path.join("."), at.clone());
            }
            Err(error) => self
                .faults
                .push(format!("{} ({at}): {error}", path.join("."))),
        }
    }
}

/// The defaults with this value.
fn read_with(path: &[&str], value: Json) -> Result<Config, serde_json::Error> {
    let mut tried = defaults();
    if let ["profiles", name, ..] = path {
        tried["profiles"][*name] = default_profile();
    }
    if let [platform, "channels", id, ..] = path {
        tried[*platform]["channels"][*id] = default_channel();
    }
    put(&mut tried, path, value);
    serde_json::from_value(tried)
}

/// A text of the environment where nothing is the default, which tells no type: a number where one is taken.
fn untold(text: &str, path: &[&str]) -> Json {
    let number = text.parse::<u64>().map(Json::from).ok();
    let number = number.filter(|number| read_with(path, number.clone()).is_ok());
    number.unwrap_or_else(|| Json::from(text))
}

fn put(tree: &mut Json, path: &[&str], value: Json) {
    let mut node = tree;
    for key in path {
        node = &mut node[*key];
    }
    *node = value;
}

fn is_token(keys: &[&str]) -> bool {
    NAMES.iter().any(|(_, key)| key[..] == *keys)
}

/// A text of the environment as the type that the default has.
fn typed(text: &str, like: &Json) -> Result<Json, &'static str> {
    match like {
        Json::Number(number) if number.is_f64() => {
            text.parse::<f64>().map(Json::from).map_err(|_| "a number")
        }
        Json::Number(_) => text
            .parse::<u64>()
            .map(Json::from)
            .map_err(|_| "a whole number"),
        Json::Bool(_) => text
            .parse::<bool>()
            .map(Json::from)
            .map_err(|_| "true or false"),
        Json::Array(_) => {
            let wanted = "a list like [\"sh\", \"-c\", \"date\"]";
            let source = File::from_str(&format!("list = {text}"), FileFormat::Toml);
            let mut table = source.collect().map_err(|_| wanted)?;
            table
                .remove("list")
                .map(|value| json(value.kind))
                .ok_or(wanted)
        }
        _ => Ok(Json::from(text)),
    }
}

fn json(kind: ValueKind) -> Json {
    match kind {
        ValueKind::Nil => Json::Null,
        ValueKind::Boolean(value) => value.into(),
        ValueKind::I64(value) => value.into(),
        ValueKind::I128(value) => value.to_string().into(),
        ValueKind::U64(value) => value.into(),
        ValueKind::U128(value) => value.to_string().into(),
        ValueKind::Float(value) => value.into(),
        ValueKind::String(value) => value.into(),
        ValueKind::Table(table) => table
            .into_iter()
            .map(|(key, value)| (key, json(value.kind)))
            .collect::<Map<_, _>>()
            .into(),
        ValueKind::Array(list) => list
            .into_iter()
            .map(|value| json(value.kind))
            .collect::<Vec<_>>()
            .into(),
    }
}

fn unknown_key(path: &[&str], at: &Origin) -> String {
    let (key, table) = path.split_last().expect("a key has a name");
    let header = match table {
        [] => "the top level".to_owned(),
        table => format!("[{}]", table.join(".")),
    };
    format!(
        "unknown key \"{key}\" in {header} ({at}){}",
        advice(path).unwrap_or_default()
    )
}

fn advice(path: &[&str]) -> Option<String> {
    let (key, table) = path.split_last()?;
    if let Place::Table(keys) = place(table)
        && let Some(near) = nearest(key, keys.iter().map(String::as_str))
    {
        return Some(format!(": did you mean \"{near}\"?"));
    }
    let all = known();
    let elsewhere = all.iter().filter_map(|path| path.rsplit_once('.'));
    let near = nearest(key, elsewhere.clone().map(|(_, key)| key))?;
    let (table, _) = elsewhere.clone().find(|(_, key)| *key == near)?;
    Some(match near == *key {
        true => format!(": it belongs into [{table}]"),
        false => format!(": did you mean \"{near}\" in [{table}]?"),
    })
}

fn unknown_variable(name: &str) -> String {
    let names: Vec<String> = known()
        .iter()
        .map(|key| format!("{PREFIX}{}", key.to_uppercase().replace('.', "__")))
        .collect();
    let hint = match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!(", did you mean {near}?"),
        None => format!(": names are written {PREFIX}SECTION__KEY"),
    };
    format!("the environment variable {name} is not read{hint}")
}

/// Every dotted key; profiles by the one that always exists.
fn known() -> Vec<String> {
    super::show::leaves(&defaults())
        .into_iter()
        .map(|(path, _)| path)
        .collect()
}

fn nearest<'a>(text: &str, among: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let far = 1 + text.len() / 3;
    among
        .map(|known| (strsim::osa_distance(text, known), known))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}
