//! `mayfly doctor`: what this host lacks, each with its mend in one sentence.
//!
//! Looks at what the configured role needs: at the host first, then at what several processes share and at the engine, then does what all of it
//! is for: one real tick.

mod chats;
mod disk;
mod engine;
mod host;
mod overlay;
mod setup;
mod stores;
mod tick;

use serde::Serialize;

use crate::{
    cli::Context,
    exit::{Exit, Failure},
    screen::Screen,
};

/// How grave it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    /// Works, and could be better.
    Advice,
    /// Will hurt some day.
    Warn,
    /// Does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    /// What was found.
    found: String,
    /// What to do; none where all is well.
    mend: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Check {
            name,
            state: State::Ok,
            found: found.into(),
            mend: None,
        }
    }

    fn not(
        state: State,
        name: &'static str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Check {
            name,
            state,
            found: found.into(),
            mend: Some(mend.into()),
        }
    }
}

pub(crate) async fn run(context: &Context) -> Result<Exit, Failure> {
    let config = &context.loaded.config;
    let screen = context.screen;
    let mut checks = Vec::new();
    let mut add = |new: Vec<Check>| {
        if !screen.json {
            screen.answer(&lines(&new, screen));
        }
        checks.extend(new);
    };
    let role = config.serve.role;
    if role.has_engine() {
        add(host::checks(config));
        add(disk::checks(config));
    }
    add(stores::checks(config).await);
    if role.has_chats() {
        add(chats::checks(config).await);
    }
    if !role.has_engine() {
        return Ok(told(&checks, screen));
    }
    let before = engine::leftovers(config).await;
    add(engine::checks(config).await);
    let spinner = screen.spinner();
    spinner.set_message("one real tick");
    let ran = tick::checks(config).await;
    spinner.finish_and_clear();
    add(ran);
    let after = engine::leftovers(config).await;
    add(engine::compare(before, after));
    Ok(told(&checks, screen))
}

fn told(checks: &[Check], screen: Screen) -> Exit {
    if screen.json {
        screen.json(&checks);
    }
    exit(checks)
}

fn exit(checks: &[Check]) -> Exit {
    match checks.iter().any(|check| check.state == State::Fail) {
        true => Exit::CheckFailed,
        false => Exit::Ok,
    }
}

fn lines(checks: &[Check], screen: Screen) -> String {
    let line = |check: &Check| {
        let state = match check.state {
            State::Ok => screen.green("ok    "),
            State::Advice => screen.dim("advice"),
            State::Warn => screen.yellow("warn  "),
            State::Fail => screen.red("fail  "),
        };
        let mend = check.mend.as_ref();
        let mend = mend.map_or_else(String::new, |mend| format!("\n{:24}-> {mend}", ""));
        format!("{state} {:16} {}{mend}\n", check.name, check.found)
    };
    checks.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failed_check_fails_and_each_says_its_mend() {
        let plain = Screen {
            json: false,
            colour: false,
        };
        let warn = Check::not(State::Warn, "runc", "version 1.1.5", "update it");
        assert_eq!(exit(std::slice::from_ref(&warn)), Exit::Ok);
        assert!(lines(std::slice::from_ref(&warn), plain).contains("-> update it"));
        let fail = Check::not(State::Fail, "root", "uid 1000", "use sudo");
        assert_eq!(exit(&[warn, fail]), Exit::CheckFailed);
    }
}
