//! The Redis that all simulated processes share: the queue's real script, run by the same Lua as Redis has, on
//! a table in memory, at a time that is set.

pub mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mayfly_orchestrator::queue::redis::{SOURCE, keys, speech::Call};
use mlua::{Function, Lua, MultiValue, Value as Word};
use redis::Value;

use self::table::Table;

/// See the module.
#[derive(Debug)]
pub struct Shared {
    lua: Lua,
    script: Function,
    within: Arc<Mutex<Within>>,
    wakes: [String; 2],
}

/// What a running script sees.
#[derive(Debug, Default)]
struct Within {
    table: Table,
    unix_ms: u64,
}

/// Whom a ring is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ring {
    /// Whoever has a place.
    Short,
    /// Whoever has a place for a long tick.
    Long,
}

impl Shared {
    /// An empty one.
    pub fn new(installation: &str) -> Shared {
        let lua = Lua::new();
        let within = Arc::new(Mutex::new(Within::default()));
        let keys = keys(installation);
        let script = prepare(&lua, &within, &keys).expect("the script can be loaded");
        let [.., short, long] = keys;
        Shared {
            lua,
            script,
            within,
            wakes: [short, long],
        }
    }

    /// Its clock from now on.
    pub fn set(&self, unix_ms: i64) {
        self.within().unix_ms = unix_ms.max(0) as u64;
    }

    /// `FLUSHALL`.
    pub fn empty(&self) {
        self.within().table.empty();
    }

    /// What a server that runs the script answers.
    pub fn call(&self, call: &Call) -> Value {
        let run = || -> mlua::Result<Word> {
            self.lua.globals().set("ARGV", call.as_slice())?;
            self.script.call(())
        };
        // Nothing of ours may fail: what would be an error in Redis is one here.
        let answer = run().unwrap_or_else(|error| panic!("the queue's script: {error}"));
        told(&answer)
    }

    /// `LPOP` of one of the lists that wake.
    pub fn rung(&self, ring: Ring) -> bool {
        let [short, long] = &self.wakes;
        let key = match ring {
            Ring::Short => short,
            Ring::Long => long,
        };
        self.within().table.rung(key)
    }

    fn within(&self) -> MutexGuard<'_, Within> {
        lock(&self.within)
    }
}

fn lock(within: &Mutex<Within>) -> MutexGuard<'_, Within> {
    within.lock().unwrap_or_else(PoisonError::into_inner)
}

fn prepare(lua: &Lua, within: &Arc<Mutex<Within>>, keys: &[String]) -> mlua::Result<Function> {
    let within = within.clone();
    let call = lua.create_function(move |lua, words: MultiValue| {
        let command: Vec<String> = words.iter().map(word).collect::<Result<_, _>>()?;
        let mut within = lock(&within);
        let answer = match command[0].as_str() {
            "TIME" => {
                let (seconds, rest) = (within.unix_ms / 1000, within.unix_ms % 1000 * 1000);
                let text = |number: u64| Value::BulkString(number.to_string().into_bytes());
                Value::Array(vec![text(seconds), text(rest)])
            }
            _ => within.table.run(&command).map_err(mlua::Error::runtime)?,
        };
        drop(within);
        heard(lua, &answer)
    })?;
    let redis = lua.create_table()?;
    redis.set("call", call)?;
    lua.globals().set("redis", redis)?;
    lua.globals().set("KEYS", keys)?;
    lua.load(SOURCE).set_name("queue.lua").into_function()
}

/// An argument, as Redis takes it from Lua.
fn word(word: &Word) -> mlua::Result<String> {
    match word {
        Word::String(text) => Ok(text.to_str()?.to_owned()),
        Word::Integer(number) => Ok(number.to_string()),
        Word::Number(number) if number.fract() == 0.0 => Ok(format!("{number:.0}")),
        other => Err(mlua::Error::runtime(format!(
            "an argument is {}",
            other.type_name()
        ))),
    }
}

/// An answer, as Redis gives it to Lua.
fn heard(lua: &Lua, answer: &Value) -> mlua::Result<Word> {
    Ok(match answer {
        Value::Nil => Word::Boolean(false),
        Value::Int(number) => Word::Number(*number as f64),
        Value::BulkString(text) => Word::String(lua.create_string(text)?),
        Value::Array(all) => {
            let list = lua.create_table_with_capacity(all.len(), 0)?;
            for (at, one) in all.iter().enumerate() {
                list.raw_set(at + 1, heard(lua, one)?)?;
            }
            Word::Table(list)
        }
        _ => Word::Table(lua.create_table()?),
    })
}

/// A script's answer, as Redis gives it to whoever called.
fn told(answer: &Word) -> Value {
    match answer {
        Word::Boolean(true) => Value::Int(1),
        Word::Integer(number) => Value::Int(*number),
        Word::Number(number) => Value::Int(*number as i64),
        Word::String(text) => Value::BulkString(text.as_bytes().to_vec()),
        Word::Table(list) => Value::Array(
            list.sequence_values::<Word>()
                .map_while(Result::ok)
                .map(|one| told(&one))
                .collect(),
        ),
        _ => Value::Nil,
    }
}
