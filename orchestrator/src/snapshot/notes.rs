//! What a seal changed, in words for the thread. Names in it are hostile text.

/// How many notes one seal keeps.
const KEPT: usize = 20;
/// How much of a path a note shows.
const SHOWN: usize = 200;

#[derive(Default)]
pub(super) struct Notes {
    kept: Vec<String>,
    more: usize,
}

impl Notes {
    pub(super) fn add(&mut self, what: &str, slot: &str, path: &[u8]) {
        if self.kept.len() == KEPT {
            self.more += 1;
            return;
        }
        self.kept.push(format!("{what} {slot}/{}", readable(path)));
    }

    pub(super) fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.kept.push(format!("and {} more", self.more));
        }
        self.kept
    }
}

fn readable(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    let plain = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let mut shown: String = text.chars().take(SHOWN).map(plain).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
