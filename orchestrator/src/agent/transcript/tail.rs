//! A transcript read while it is written: whole lines in their order, each once, a bounded piece at
//! a time.

use std::{
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

use super::Line;

/// How much of the file is read at once.
const PIECE: usize = 64 << 10;
/// The longest line: a prompt of the longest text, each byte escaped to six.
const LONGEST: usize = 8 << 20;

/// See the module.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// Where the next read begins.
    offset: u64,
    /// The beginning of a line whose end was not read yet.
    begun: Vec<u8>,
    /// Number of the last line that was handed out.
    last: u64,
}

/// What a look found.
#[derive(Debug, Default)]
pub struct Found {
    /// Lines that are new.
    pub lines: Vec<Line>,
    /// There was no more in the file.
    pub all: bool,
}

impl Tail {
    /// The lines of a file, which need not exist yet, from the one after number `after` on.
    pub fn new(path: PathBuf, after: u64) -> Tail {
        Tail {
            path,
            file: None,
            offset: 0,
            begun: Vec::new(),
            last: after,
        }
    }

    /// Reads the next piece; blocks on the disk. A line that is no event is left out.
    pub fn look(&mut self) -> io::Result<Found> {
        let file = match &mut self.file {
            Some(file) => file,
            none => match File::open(&self.path) {
                Ok(file) => none.insert(file),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Ok(Found {
                        all: true,
                        ..Found::default()
                    });
                }
                Err(error) => return Err(error),
            },
        };
        let mut piece = vec![0; PIECE];
        let read = file.read_at(&mut piece, self.offset)?;
        self.offset += read as u64;
        let mut lines = Vec::new();
        let mut rest = &piece[..read];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            // Taken, so that a long line's room does not stay.
            let line = serde_json::from_slice::<Line>(&std::mem::take(&mut self.begun));
            if let Some(line) = line.ok().filter(|line| line.n > self.last) {
                self.last = line.n;
                lines.push(line);
            }
        }
        if self.begun.len() + rest.len() > LONGEST {
            let told = format!("{} has a line that no tick writes", self.path.display());
            return Err(io::Error::new(ErrorKind::InvalidData, told));
        }
        self.begun.extend_from_slice(rest);
        Ok(Found {
            lines,
            all: read == 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{
        super::{Event, Transcript},
        *,
    };

    fn numbers(tail: &mut Tail) -> Vec<u64> {
        let mut numbers = Vec::new();
        loop {
            let found = tail.look().unwrap();
            numbers.extend(found.lines.iter().map(|line| line.n));
            if found.all {
                return numbers;
            }
        }
    }

    #[test]
    fn lines_come_once_whole_and_in_order_also_while_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/t.jsonl");
        let mut tail = Tail::new(path.clone(), 0);
        assert_eq!(numbers(&mut tail), [0; 0]);
        let mut transcript = Transcript::create(&path, 10 << 20).unwrap();
        let text = "x".repeat(3 * PIECE / 2);
        for _ in 0..3 {
            transcript
                .write(Event::Stdout { text: text.clone() })
                .unwrap();
        }
        assert_eq!(numbers(&mut tail), [1, 2, 3]);
        let line = r#"{"n":4,"at":1,"event":"note","text":"x"}"#;
        let (begin, end) = line.split_at(11);
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(begin.as_bytes()).unwrap();
        assert_eq!(numbers(&mut tail), [0; 0]);
        file.write_all(format!("{end}\nnonsense\n").as_bytes())
            .unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
        assert_eq!(numbers(&mut tail), [4]);
        assert_eq!(numbers(&mut Tail::new(path, 2)), [3, 4]);
    }

    #[test]
    fn a_line_without_end_costs_bounded_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let mut tail = Tail::new(path, 0);
        let refused = loop {
            match tail.look() {
                Ok(found) => assert!(!found.all),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        assert!(tail.begun.len() <= LONGEST);
    }
}
