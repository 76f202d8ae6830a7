//! The commands of Redis that the queue's script uses, on a table in memory. `tests/faithful.rs` compares it
//! with a real server.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use redis::Value;

/// All keys.
#[derive(Debug, Default)]
pub struct Table(HashMap<String, Kept>);

#[derive(Debug)]
enum Kept {
    Hash(BTreeMap<String, String>),
    Sorted(Sorted),
    Set(BTreeSet<String>),
    List(VecDeque<String>),
}

/// By member and by score. Scores are whole numbers.
#[derive(Debug, Default)]
struct Sorted {
    scores: HashMap<String, i64>,
    order: BTreeSet<(i64, String)>,
}

impl Sorted {
    fn put(&mut self, member: &str, score: i64) -> bool {
        let before = self.scores.insert(member.to_owned(), score);
        if let Some(before) = before {
            self.order.remove(&(before, member.to_owned()));
        }
        self.order.insert((score, member.to_owned()));
        before.is_none()
    }

    fn remove(&mut self, member: &str) -> bool {
        let Some(score) = self.scores.remove(member) else {
            return false;
        };
        self.order.remove(&(score, member.to_owned()))
    }
}

/// Why a command is not run.
pub type Refusal = String;

macro_rules! kept {
    ($name:ident, $looked:ident, $kind:ident, $type:ty) => {
        fn $name(&mut self, key: &str) -> Result<&mut $type, Refusal> {
            let kept = self
                .0
                .entry(key.to_owned())
                .or_insert_with(|| Kept::$kind(<$type>::default()));
            match kept {
                Kept::$kind(found) => Ok(found),
                _ => Err(format!("WRONGTYPE {key}")),
            }
        }

        fn $looked(&self, key: &str) -> Result<Option<&$type>, Refusal> {
            match self.0.get(key) {
                None => Ok(None),
                Some(Kept::$kind(found)) => Ok(Some(found)),
                Some(_) => Err(format!("WRONGTYPE {key}")),
            }
        }
    };
}

impl Table {
    kept!(hash, hash_of, Hash, BTreeMap<String, String>);
    kept!(sorted, sorted_of, Sorted, Sorted);
    kept!(set, set_of, Set, BTreeSet<String>);
    kept!(list, list_of, List, VecDeque<String>);

    /// `FLUSHALL`.
    pub fn empty(&mut self) {
        self.0.clear();
    }

    /// `LPOP`: whether somebody rang.
    pub fn rung(&mut self, key: &str) -> bool {
        let rung = match self.0.get_mut(key) {
            Some(Kept::List(list)) => list.pop_front().is_some(),
            _ => false,
        };
        self.forget_empty(key);
        rung
    }

    /// Runs a command; `TIME` is not among them.
    pub fn run(&mut self, command: &[String]) -> Result<Value, Refusal> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let answer = self.answer(&words);
        if let [_, key, ..] = words[..] {
            self.forget_empty(key);
        }
        answer
    }

    fn answer(&mut self, words: &[&str]) -> Result<Value, Refusal> {
        match words {
            [
                "HGET" | "HSET" | "HSETNX" | "HDEL" | "HEXISTS" | "HMGET" | "HGETALL" | "HVALS"
                | "HINCRBY",
                ..,
            ] => self.of_hashes(words),
            ["ZADD" | "ZREM" | "ZREMRANGEBYSCORE", ..] => self.change_sorted(words),
            ["ZSCORE" | "ZRANK" | "ZRANGE" | "ZRANGEBYSCORE", ..] => self.look_sorted(words),
            ["SADD", key, member] => Ok(truth(self.set(key)?.insert((*member).to_owned()))),
            ["SREM", key, member] => Ok(truth(self.set(key)?.remove(*member))),
            ["SISMEMBER", key, member] => {
                let set = self.set_of(key)?;
                Ok(truth(set.is_some_and(|set| set.contains(*member))))
            }
            ["SMEMBERS", key] => Ok(texts(self.set_of(key)?.into_iter().flatten())),
            ["RPUSH", key, element] => {
                let list = self.list(key)?;
                list.push_back((*element).to_owned());
                Ok(Value::Int(list.len() as i64))
            }
            ["LTRIM", key, first, "-1"] => {
                let first = usize::try_from(-whole(first)?).map_err(|_| unknown(words))?;
                let list = self.list(key)?;
                list.drain(..list.len().saturating_sub(first));
                Ok(Value::Okay)
            }
            ["LLEN", key] => Ok(Value::Int(
                self.list_of(key)?.map_or(0, VecDeque::len) as i64
            )),
            _ => Err(unknown(words)),
        }
    }

    fn of_hashes(&mut self, words: &[&str]) -> Result<Value, Refusal> {
        match words {
            ["HGET", key, field] => {
                let hash = self.hash_of(key)?;
                Ok(maybe(hash.and_then(|hash| hash.get(*field))))
            }
            ["HSET", key, field, value] => {
                let before = self
                    .hash(key)?
                    .insert((*field).to_owned(), (*value).to_owned());
                Ok(truth(before.is_none()))
            }
            ["HSETNX", key, field, value] => {
                let hash = self.hash(key)?;
                let new = !hash.contains_key(*field);
                if new {
                    hash.insert((*field).to_owned(), (*value).to_owned());
                }
                Ok(truth(new))
            }
            ["HDEL", key, field] => Ok(truth(self.hash(key)?.remove(*field).is_some())),
            ["HEXISTS", key, field] => {
                let hash = self.hash_of(key)?;
                Ok(truth(hash.is_some_and(|hash| hash.contains_key(*field))))
            }
            ["HMGET", key, fields @ ..] => {
                let hash = self.hash_of(key)?;
                let of = |field: &&str| maybe(hash.and_then(|hash| hash.get(*field)));
                Ok(Value::Array(fields.iter().map(of).collect()))
            }
            ["HGETALL", key] => {
                let hash = self.hash_of(key)?.into_iter().flatten();
                Ok(texts(hash.flat_map(|(field, value)| [field, value])))
            }
            ["HVALS", key] => {
                let hash = self.hash_of(key)?;
                Ok(texts(hash.into_iter().flat_map(BTreeMap::values)))
            }
            ["HINCRBY", key, field, by] => {
                let by = whole(by)?;
                let hash = self.hash(key)?;
                let sum = hash.get(*field).map_or(Ok(0), |before| whole(before))? + by;
                hash.insert((*field).to_owned(), sum.to_string());
                Ok(Value::Int(sum))
            }
            _ => Err(unknown(words)),
        }
    }

    fn change_sorted(&mut self, words: &[&str]) -> Result<Value, Refusal> {
        match words {
            ["ZADD", key, score, member] => {
                let score = whole(score)?;
                Ok(truth(self.sorted(key)?.put(member, score)))
            }
            ["ZADD", key, "XX", score, member] => {
                let score = whole(score)?;
                let sorted = self.sorted(key)?;
                if sorted.scores.contains_key(*member) {
                    sorted.put(member, score);
                }
                Ok(Value::Int(0))
            }
            ["ZREM", key, member] => Ok(truth(self.sorted(key)?.remove(member))),
            ["ZREMRANGEBYSCORE", key, "-inf", most] => {
                let most = whole(most)?;
                let sorted = self.sorted(key)?;
                let mut removed = 0;
                while let Some((score, member)) = sorted.order.first()
                    && *score <= most
                {
                    sorted.scores.remove(member);
                    sorted.order.pop_first();
                    removed += 1;
                }
                Ok(Value::Int(removed))
            }
            _ => Err(unknown(words)),
        }
    }

    fn look_sorted(&self, words: &[&str]) -> Result<Value, Refusal> {
        match words {
            ["ZSCORE", key, member] => {
                let sorted = self.sorted_of(key)?;
                let score = sorted.and_then(|sorted| sorted.scores.get(*member));
                Ok(maybe(score.map(i64::to_string).as_ref()))
            }
            ["ZRANK", key, member] => {
                let Some(sorted) = self.sorted_of(key)? else {
                    return Ok(Value::Nil);
                };
                let score = sorted.scores.get(*member);
                Ok(score.map_or(Value::Nil, |score| {
                    let place = (*score, (*member).to_owned());
                    Value::Int(sorted.order.range(..place).count() as i64)
                }))
            }
            ["ZRANGE", key, first, last, "WITHSCORES"] => {
                let place = |text| usize::try_from(whole(text)?).map_err(|_| unknown(words));
                let (first, last) = (place(first)?, place(last)?);
                let order = self
                    .sorted_of(key)?
                    .into_iter()
                    .flat_map(|sorted| &sorted.order);
                let found = order.skip(first).take((last + 1).saturating_sub(first));
                Ok(Value::Array(
                    found
                        .flat_map(|(score, member)| [text(member), text(&score.to_string())])
                        .collect(),
                ))
            }
            ["ZRANGEBYSCORE", key, least, most, "LIMIT", "0", many] => {
                let bound = |text: &str, infinite, value| match text == infinite {
                    true => Ok(value),
                    false => whole(text),
                };
                let (least, most) = (
                    bound(least, "-inf", i64::MIN)?,
                    bound(most, "+inf", i64::MAX)?,
                );
                let many = usize::try_from(whole(many)?).map_err(|_| unknown(words))?;
                let order = self
                    .sorted_of(key)?
                    .into_iter()
                    .flat_map(|sorted| sorted.order.range((least, String::new())..));
                let found = order.take_while(|(score, _)| *score <= most).take(many);
                Ok(texts(found.map(|(_, member)| member)))
            }
            _ => Err(unknown(words)),
        }
    }

    /// What holds nothing does not exist.
    fn forget_empty(&mut self, key: &str) {
        let empty = match self.0.get(key) {
            None => false,
            Some(Kept::Hash(hash)) => hash.is_empty(),
            Some(Kept::Sorted(sorted)) => sorted.order.is_empty(),
            Some(Kept::Set(set)) => set.is_empty(),
            Some(Kept::List(list)) => list.is_empty(),
        };
        if empty {
            self.0.remove(key);
        }
    }
}

fn unknown(words: &[&str]) -> Refusal {
    format!("the simulated Redis does not know {words:?}")
}

fn whole(text: &str) -> Result<i64, Refusal> {
    text.parse()
        .map_err(|_| format!("{text} is no whole number"))
}

fn truth(yes: bool) -> Value {
    Value::Int(i64::from(yes))
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn maybe(found: Option<&String>) -> Value {
    found.map_or(Value::Nil, |found| text(found))
}

fn texts<'a>(all: impl Iterator<Item = &'a String>) -> Value {
    Value::Array(all.map(|one| text(one)).collect())
}
