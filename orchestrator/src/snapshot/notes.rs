//! What a seal changed, in words for the thread. Names in it are hostile text.

/// How many notes one seal keeps.
const KEPT: usize = 20;
/// How much of a path a note shows.
const SHOWN: usize = 200;
/// What is noted and not told.
pub(super) const SOCKET: &str = "dropped socket";

#[derive(Default)]
pub(super) struct Notes {
    kept: Vec<String>,
    more: usize,
    /// The first one that a person would miss, and how many more there are.
    missed: Option<(String, usize)>,
}

impl Notes {
    pub(super) fn add(&mut self, what: &str, slot: &str, path: &[u8]) {
        // Nobody listens on a socket of an earlier tick, so nobody misses it.
        let missed = what != SOCKET;
        if let (Some((_, more)), true) = (&mut self.missed, missed) {
            *more += 1;
        }
        let tell = missed && self.missed.is_none();
        if self.kept.len() == KEPT && !tell {
            self.more += 1;
            return;
        }
        let note = format!("{what} {slot}/{}", readable(path));
        if tell {
            self.missed = Some((note.clone(), 0));
        }
        match self.kept.len() {
            KEPT => self.more += 1,
            _ => self.kept.push(note),
        }
    }

    /// One line for the thread, where a person would miss something.
    pub(super) fn told(&self) -> Option<String> {
        self.missed.as_ref().map(|(first, more)| match more {
            0 => first.clone(),
            more => format!("{first} and {more} more"),
        })
    }

    pub(super) fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.kept.push(format!("and {} more", self.more));
        }
        self.kept
    }
}

/// For a sentence: cut, and unable to steer a terminal.
pub(super) fn readable(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut shown: String = text.chars().take(SHOWN).map(plain).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
