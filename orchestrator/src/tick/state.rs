//! The run phase as a pure machine: `(state, event, now) -> (state, effect)`. No clock, no I/O.
//!
//! Whoever wants a program to end asks politely first: SIGINT at once, SIGTERM after 2 s, SIGKILL
//! after 5 s. What the program left is kept unless it died by SIGKILL.

use std::time::Duration;

use mayfly_domain::{Apology, Limits};
use mayfly_init::protocol::{Exit, Signal};

use super::outcome::{Changes, TickOutcome};

/// From the first request to SIGTERM.
pub const TERMINATE_AFTER: Duration = Duration::from_secs(2);
/// From the first request to SIGKILL.
pub const KILL_AFTER: Duration = Duration::from_secs(5);
/// From SIGKILL until a sandbox that reports no exit counts as gone.
pub const GONE_AFTER: Duration = Duration::from_secs(10);

/// Why a program is asked to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A person said stop.
    Stopped,
    /// The wall-clock limit.
    TimedOut,
    /// The first-output limit.
    NoFirstOutput,
    /// The profile's cap on state; the limit in words.
    StateFull(String),
    /// The same, and it writes on far beyond the cap. Not polite: its files are refused anyway.
    StateOverrun(String),
    /// The host's floor of free space. Not polite: every further second writes.
    HostDiskFull,
    /// The worker comes to rest; the message runs again elsewhere.
    Drained,
}

/// A program that runs or has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running {
        /// When it started.
        since: Duration,
        /// Whether it has written anything.
        wrote: bool,
        /// The first request to end, and when and how it was last repeated.
        asked: Option<Asked>,
    },
    /// It is over.
    Ended {
        /// How it exited; none if the sandbox went away.
        exit: Option<Exit>,
        /// Why it had been asked to end.
        cause: Option<Cause>,
    },
}

/// A request to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Why; the first cause counts.
    pub cause: Cause,
    /// When.
    pub at: Duration,
    /// The strongest signal sent so far.
    pub sent: Signal,
}

/// What happens to a running program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It wrote.
    Wrote,
    /// It ended.
    Exited(Exit),
    /// Its sandbox is gone.
    Gone,
    /// Somebody wants it to end.
    Ask(Cause),
    /// Time passed.
    Clock,
}

impl State {
    /// A program that starts now.
    pub fn started(now: Duration) -> State {
        State::Running {
            since: now,
            wrote: false,
            asked: None,
        }
    }

    /// The next state, and the signal to send.
    pub fn step(self, event: Event, now: Duration, limits: &Limits) -> (State, Option<Signal>) {
        let State::Running {
            since,
            wrote,
            asked,
        } = self
        else {
            return (self, None);
        };
        match event {
            Event::Exited(exit) => (
                State::Ended {
                    exit: Some(exit),
                    cause: asked.map(|asked| asked.cause),
                },
                None,
            ),
            Event::Gone => (
                State::Ended {
                    exit: None,
                    cause: asked.map(|asked| asked.cause),
                },
                None,
            ),
            Event::Wrote => (
                State::Running {
                    since,
                    wrote: true,
                    asked,
                },
                None,
            ),
            Event::Ask(cause) => ask(since, wrote, asked, cause, now),
            Event::Clock => tick(since, wrote, asked, now, limits),
        }
    }

    /// When [`Event::Clock`] matters next.
    pub fn wake_at(&self, limits: &Limits) -> Option<Duration> {
        let State::Running {
            since,
            wrote,
            asked,
        } = self
        else {
            return None;
        };
        Some(match asked {
            None => next_limit(*since, *wrote, limits).0,
            Some(Asked {
                sent: Signal::Interrupt,
                at,
                ..
            }) => *at + TERMINATE_AFTER,
            Some(Asked {
                sent: Signal::Terminate,
                at,
                ..
            }) => *at + KILL_AFTER,
            Some(Asked {
                sent: Signal::Kill,
                at,
                ..
            }) => *at + KILL_AFTER + GONE_AFTER,
        })
    }
}

fn next_limit(since: Duration, wrote: bool, limits: &Limits) -> (Duration, Cause) {
    let wall = (
        since + Duration::from_secs(limits.wall_clock_s),
        Cause::TimedOut,
    );
    if wrote || limits.first_output_s == 0 {
        return wall;
    }
    let first = (
        since + Duration::from_secs(limits.first_output_s),
        Cause::NoFirstOutput,
    );
    if first.0 < wall.0 { first } else { wall }
}

fn ask(
    since: Duration,
    wrote: bool,
    asked: Option<Asked>,
    cause: Cause,
    now: Duration,
) -> (State, Option<Signal>) {
    let rude = matches!(cause, Cause::HostDiskFull | Cause::StateOverrun(_));
    let (asked, signal) = match asked {
        None => {
            let sent = if rude {
                Signal::Kill
            } else {
                Signal::Interrupt
            };
            (
                Asked {
                    cause,
                    at: now,
                    sent,
                },
                Some(sent),
            )
        }
        Some(first) if rude && first.sent != Signal::Kill => (
            Asked {
                cause,
                sent: Signal::Kill,
                ..first
            },
            Some(Signal::Kill),
        ),
        Some(first) => (first, None),
    };
    (
        State::Running {
            since,
            wrote,
            asked: Some(asked),
        },
        signal,
    )
}

fn tick(
    since: Duration,
    wrote: bool,
    asked: Option<Asked>,
    now: Duration,
    limits: &Limits,
) -> (State, Option<Signal>) {
    let Some(first) = asked else {
        let (at, cause) = next_limit(since, wrote, limits);
        if now < at {
            return (
                State::Running {
                    since,
                    wrote,
                    asked: None,
                },
                None,
            );
        }
        return ask(since, wrote, None, cause, now);
    };
    let waited = now.saturating_sub(first.at);
    let due = if waited >= KILL_AFTER {
        Signal::Kill
    } else if waited >= TERMINATE_AFTER {
        Signal::Terminate
    } else {
        Signal::Interrupt
    };
    if first.sent == Signal::Kill {
        if waited >= KILL_AFTER + GONE_AFTER {
            return (
                State::Ended {
                    exit: None,
                    cause: Some(first.cause),
                },
                None,
            );
        }
        return (
            State::Running {
                since,
                wrote,
                asked: Some(first),
            },
            None,
        );
    }
    let signal = (due != first.sent).then_some(due);
    (
        State::Running {
            since,
            wrote,
            asked: Some(Asked { sent: due, ..first }),
        },
        signal,
    )
}

/// What the end of a program means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The tick's outcome.
    pub outcome: TickOutcome,
    /// Whether its files may be kept.
    pub changes: Changes,
    /// What a person is told; none for a plain answer.
    pub apology: Option<Apology>,
    /// Whether the message runs again.
    pub again: Again,
}

/// Whether a message runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// This was its tick.
    No,
    /// Yes, and this tick counts as an attempt.
    Counted,
    /// Yes, and this tick does not count.
    Free,
    /// The same, without a pause.
    AtOnce,
    /// Only when a person says so: trying again cannot help.
    Parked,
}

const SIGKILL: i32 = 9;

/// The kept-or-discarded rule and the notice of every way a program can end.
pub fn verdict(
    exit: Option<Exit>,
    cause: Option<Cause>,
    answered: bool,
    stderr_tail: &str,
    limits: &Limits,
) -> Verdict {
    use TickOutcome::*;
    let Some(exit) = exit else {
        return gone(cause, limits);
    };
    let killed = exit.signal == Some(SIGKILL);
    let changes = if killed {
        Changes::Discarded
    } else {
        Changes::Kept
    };
    let end = |outcome, apology| Verdict {
        outcome,
        changes,
        apology,
        again: Again::No,
    };
    if killed && exit.oom {
        return end(
            Failed,
            Some(Apology::OutOfMemory {
                memory_mib: limits.memory_mib,
            }),
        );
    }
    match cause {
        Some(Cause::Drained) => Verdict {
            outcome: Interrupted,
            changes: Changes::Discarded,
            apology: Some(drained()),
            again: Again::Free,
        },
        Some(cause) => asked_to_end(cause, limits, end),
        None => match (exit.code, exit.signal) {
            (Some(0), _) if answered => end(Done, None),
            (Some(0), _) => end(Done, Some(Apology::NoAnswer)),
            (Some(code), _) => end(
                Failed,
                Some(Apology::Exit {
                    code,
                    stderr: stderr_tail.to_owned(),
                }),
            ),
            (None, signal) => end(
                Failed,
                Some(Apology::Killed {
                    signal: signal.unwrap_or(0),
                }),
            ),
        },
    }
}

fn drained() -> Apology {
    Apology::Interrupted {
        reason: "the worker was shut down; the message runs again".to_owned(),
    }
}

fn asked_to_end(
    cause: Cause,
    limits: &Limits,
    end: impl Fn(TickOutcome, Option<Apology>) -> Verdict,
) -> Verdict {
    use TickOutcome::*;
    match cause {
        Cause::Stopped => end(Cancelled, Some(Apology::Stopped)),
        Cause::TimedOut => end(
            TimedOut,
            Some(Apology::TimedOut {
                wall_clock_s: limits.wall_clock_s,
            }),
        ),
        Cause::NoFirstOutput => end(
            TimedOut,
            Some(Apology::NoFirstOutput {
                first_output_s: limits.first_output_s,
            }),
        ),
        Cause::StateFull(limit) | Cause::StateOverrun(limit) => {
            end(OverBudget, Some(Apology::StateFull { limit }))
        }
        Cause::HostDiskFull => end(OverBudget, Some(Apology::HostDiskFull)),
        Cause::Drained => end(Interrupted, Some(drained())),
    }
}

/// The sandbox went away without an exit. What a person or a limit asked for is answered, not
/// repeated; anything else runs again.
/// How a tick ends that was asked to before its program started.
pub fn asked_early(cause: Cause, limits: &Limits) -> super::EndedBadly {
    let verdict = gone(Some(cause), limits);
    super::EndedBadly {
        outcome: verdict.outcome,
        apology: verdict.apology.unwrap_or(Apology::NoAnswer),
        text: String::new(),
        again: verdict.again,
        exit_code: None,
        usage: crate::db::endings::Usage::default(),
        removed: false,
    }
}

fn gone(cause: Option<Cause>, limits: &Limits) -> Verdict {
    let end = |outcome, apology, again| Verdict {
        outcome,
        changes: Changes::Discarded,
        apology,
        again,
    };
    match cause {
        Some(Cause::Drained) => end(TickOutcome::Interrupted, Some(drained()), Again::Free),
        Some(cause) => asked_to_end(cause, limits, |outcome, apology| {
            end(outcome, apology, Again::No)
        }),
        None => {
            let reason = "the sandbox went away while the program ran".to_owned();
            let apology = Apology::Interrupted { reason };
            end(TickOutcome::Interrupted, Some(apology), Again::Counted)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exit(code: Option<i32>, signal: Option<i32>, oom: bool) -> Exit {
        Exit { code, signal, oom }
    }

    fn event() -> impl Strategy<Value = (Event, u64)> {
        let causes = prop_oneof![
            Just(Cause::Stopped),
            Just(Cause::StateFull("1 MiB".into())),
            Just(Cause::StateOverrun("1 MiB".into())),
            Just(Cause::HostDiskFull),
            Just(Cause::Drained),
        ];
        let events = prop_oneof![
            4 => Just(Event::Clock),
            2 => Just(Event::Wrote),
            1 => causes.prop_map(Event::Ask),
        ];
        (events, 0u64..4_000)
    }

    proptest! {
        /// Whatever happens, a program is asked in the order INT, TERM, KILL, never weaker than
        /// before, and a program that ignores all of it is over within the timetable.
        #[test]
        fn every_run_ends_within_its_limits(events in prop::collection::vec(event(), 0..80)) {
            let limits = Limits { wall_clock_s: 20, first_output_s: 5, ..Limits::default() };
            let mut now = Duration::from_secs(100);
            let mut state = State::started(now);
            let mut sent = Vec::new();
            let mut follow = |state: State, event, now| {
                let (state, signal) = state.step(event, now, &limits);
                sent.extend(signal);
                state
            };
            for (event, pause) in events {
                let next = now + Duration::from_millis(pause);
                while let Some(wake) = state.wake_at(&limits).filter(|wake| *wake <= next) {
                    now = wake.max(now);
                    state = follow(state, Event::Clock, now);
                }
                now = next;
                state = follow(state, event, now);
            }
            let mut wakes = 0;
            while let Some(wake) = state.wake_at(&limits) {
                now = wake.max(now);
                state = follow(state, Event::Clock, now);
                wakes += 1;
                prop_assert!(wakes < 10, "{state:?}");
            }
            let strength = |signal: &Signal| match signal {
                Signal::Interrupt => 0, Signal::Terminate => 1, Signal::Kill => 2,
            };
            prop_assert!(sent.windows(2).all(|two| strength(&two[0]) < strength(&two[1])), "{sent:?}");
            prop_assert_eq!(sent.last(), Some(&Signal::Kill));
            prop_assert!(now <= Duration::from_secs(100 + 20) + KILL_AFTER + GONE_AFTER + Duration::from_secs(400));
        }

        /// Files are kept exactly if the program itself did not die by SIGKILL and its sandbox
        /// reported the end; a drained tick never keeps.
        #[test]
        fn kept_or_discarded(code in prop::option::of(-1i32..300), signal in prop::option::of(1i32..32),
                             oom: bool, answered: bool, has_exit: bool) {
            let limits = Limits::default();
            let e = has_exit.then(|| exit(code, signal, oom));
            let verdict = verdict(e, None, answered, "", &limits);
            let expected = if has_exit && signal != Some(9) { Changes::Kept } else { Changes::Discarded };
            prop_assert_eq!(verdict.changes, expected);
            prop_assert_eq!(verdict.again != Again::No, !has_exit);
        }
    }

    #[test]
    fn at_08_each_end_has_its_own_words() {
        let limits = Limits {
            memory_mib: 256,
            wall_clock_s: 9,
            ..Limits::default()
        };
        let say = |exit, cause, answered| {
            let verdict = verdict(exit, cause, answered, "boom", &limits);
            let apology = verdict
                .apology
                .map(|apology| apology.to_string())
                .unwrap_or_default();
            (verdict.outcome, apology, verdict.changes)
        };
        use Changes::*;
        use TickOutcome::*;
        assert_eq!(
            say(Some(exit(Some(0), None, false)), None, true),
            (Done, String::new(), Kept)
        );
        assert_eq!(
            say(Some(exit(None, Some(9), true)), None, true),
            (Failed, "out of memory (256 MiB)".into(), Discarded)
        );
        assert_eq!(
            say(Some(exit(Some(0), None, true)), None, true),
            (Done, String::new(), Kept)
        );
        assert_eq!(
            say(Some(exit(Some(3), None, false)), None, false),
            (Failed, "exit 3".into(), Kept)
        );
        assert_eq!(
            say(
                Some(exit(None, Some(15), false)),
                Some(Cause::TimedOut),
                true
            ),
            (TimedOut, "time limit of 9 s reached".into(), Kept)
        );
        assert_eq!(
            say(Some(exit(None, Some(9), false)), Some(Cause::Stopped), true),
            (Cancelled, "stopped".into(), Discarded)
        );
    }
}
