//! Who is signed in. A link is good for one use within minutes, what it opens is a session; both are
//! secrets of 32 random bytes that only this process knows, so a restart ends all of them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use rand::RngCore as _;
use subtle::ConstantTimeEq as _;

/// How long a link may be used.
pub(crate) const LINK: Duration = Duration::from_secs(10 * 60);
/// Links that are good at once; a further one ends the oldest.
const LINKS: usize = 8;
/// A session ends when nobody used it for so long.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// And so long after its start in any case.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// Sessions at once; a further one ends the one that was not used for the longest.
const SESSIONS: usize = 16;
/// Sentences a session remembers.
const TOLD: usize = 8;

/// See the module.
#[derive(Default)]
pub(crate) struct SignIn(Mutex<State>);

impl std::fmt::Debug for SignIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignIn").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    links: VecDeque<Link>,
    sessions: Vec<Open>,
}

struct Link {
    secret: String,
    made: Instant,
}

struct Open {
    secret: String,
    form: String,
    since: Instant,
    used: Instant,
    told: VecDeque<(String, String)>,
}

/// Whoever sent a request, signed in.
#[derive(Debug, Clone)]
pub(super) struct Session {
    /// The cookie's value.
    pub(super) secret: String,
    /// What every form of this session carries, and no other page knows.
    pub(super) form: String,
}

impl SignIn {
    /// A new link's secret.
    pub(crate) fn link(&self, now: Instant) -> String {
        let mut state = self.state(now);
        if state.links.len() == LINKS {
            state.links.pop_front();
        }
        let secret = secret();
        let made = now;
        state.links.push_back(Link {
            secret: secret.clone(),
            made,
        });
        secret
    }

    /// The session that a link opens; none where it is used, old or made up.
    pub(super) fn open(&self, link: &str, now: Instant) -> Option<Session> {
        let mut state = self.state(now);
        let at = position(state.links.iter().map(|known| &known.secret), link)?;
        state.links.remove(at);
        if state.sessions.len() == SESSIONS {
            let used = |&at: &usize| state.sessions[at].used;
            let oldest = (0..SESSIONS).min_by_key(used)?;
            state.sessions.remove(oldest);
        }
        let session = Session {
            secret: secret(),
            form: secret(),
        };
        state.sessions.push(Open {
            secret: session.secret.clone(),
            form: session.form.clone(),
            since: now,
            used: now,
            told: VecDeque::new(),
        });
        Some(session)
    }

    /// The session of a cookie, which is used by this.
    pub(super) fn session(&self, cookie: &str, now: Instant) -> Option<Session> {
        let mut state = self.state(now);
        let open = state.of(cookie)?;
        open.used = now;
        Some(Session {
            secret: open.secret.clone(),
            form: open.form.clone(),
        })
    }

    /// Ends a session.
    pub(super) fn close(&self, session: &Session) {
        let mut state = self.state(Instant::now());
        state.sessions.retain(|open| open.secret != session.secret);
    }

    /// Keeps a sentence for the page that is shown next; its name there.
    pub(super) fn tell(&self, session: &Session, sentence: String) -> String {
        let name = secret();
        let mut state = self.state(Instant::now());
        if let Some(open) = state.of(&session.secret) {
            if open.told.len() == TOLD {
                open.told.pop_front();
            }
            open.told.push_back((name.clone(), sentence));
        }
        name
    }

    /// What was told under a name.
    pub(super) fn told(&self, session: &Session, name: &str) -> Option<String> {
        let mut state = self.state(Instant::now());
        let told = &state.of(&session.secret)?.told;
        let found = told.iter().find(|(known, _)| known == name);
        found.map(|(_, sentence)| sentence.clone())
    }

    /// Without what is over.
    fn state(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().expect("never poisoned");
        let age = |since: Instant| now.saturating_duration_since(since);
        state.links.retain(|link| age(link.made) < LINK);
        state
            .sessions
            .retain(|open| age(open.used) < IDLE && age(open.since) < LONGEST);
        state
    }
}

impl State {
    fn of(&mut self, cookie: &str) -> Option<&mut Open> {
        let at = position(self.sessions.iter().map(|open| &open.secret), cookie)?;
        self.sessions.get_mut(at)
    }
}

/// Looks at every secret, however soon one fits.
fn position<'a>(known: impl Iterator<Item = &'a String>, given: &str) -> Option<usize> {
    known.enumerate().fold(None, |found, (at, known)| {
        match bool::from(known.as_bytes().ct_eq(given.as_bytes())) {
            true => Some(at),
            false => found,
        }
    })
}

fn secret() -> String {
    let mut random = [0; 32];
    rand::rng().fill_bytes(&mut random);
    hex::encode(random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_good_once_and_for_minutes() {
        let (doors, now) = (SignIn::default(), Instant::now());
        let link = doors.link(now);
        assert!(doors.open("", now).is_none());
        assert!(doors.open(&link[..63], now).is_none());
        let session = doors.open(&link, now).expect("a new link");
        assert!(doors.open(&link, now).is_none(), "it was used");
        assert!(doors.session(&session.secret, now).is_some());
        assert_ne!(session.secret, link);
        let [late, last] = [doors.link(now), doors.link(now)];
        let almost = now + LINK - Duration::from_millis(1);
        assert!(doors.open(&last, almost).is_some());
        assert!(doors.open(&late, now + LINK).is_none(), "it is old");
    }

    #[test]
    fn sessions_end() {
        let (doors, now) = (SignIn::default(), Instant::now());
        let open = || doors.open(&doors.link(now), now).expect("a new link");
        let (idle, closed, long) = (open(), open(), open());
        doors.close(&closed);
        assert!(doors.session(&closed.secret, now).is_none());
        let mut then = now;
        while then + IDLE / 2 < now + LONGEST {
            then += IDLE / 2;
            assert!(doors.session(&long.secret, then).is_some());
        }
        assert!(doors.session(&long.secret, now + LONGEST).is_none());
        assert!(doors.session(&idle.secret, now + IDLE).is_none());
        assert!(doors.session("", now).is_none());
    }

    #[test]
    fn links_sessions_and_sentences_are_bounded() {
        let (doors, now) = (SignIn::default(), Instant::now());
        let links: Vec<String> = (0..=LINKS).map(|_| doors.link(now)).collect();
        assert!(doors.open(&links[0], now).is_none());
        let used = doors.open(&links[1], now).expect("among the newest");
        let unused = doors.open(&links[2], now).expect("among the newest");
        let later = now + Duration::from_secs(1);
        doors.session(&used.secret, later);
        for _ in 0..SESSIONS - 1 {
            doors.open(&doors.link(later), later).expect("a new link");
        }
        assert!(doors.session(&unused.secret, later).is_none());
        assert!(doors.session(&used.secret, later).is_some());
        let names: Vec<String> = (0..=TOLD)
            .map(|n| doors.tell(&used, n.to_string()))
            .collect();
        assert_eq!(doors.told(&used, &names[0]), None);
        assert_eq!(doors.told(&used, &names[TOLD]), Some(TOLD.to_string()));
    }
}
