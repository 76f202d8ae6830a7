//! How two states differ. Looks only at what the layers touch that they do not share, so states on
//! one base cost what lies between them; states on different bases are compared whole.
//!
//! Bounded in time and memory: changes past a limit are counted, large files are not read for
//! lines, and what was guessed or left out is said in a sentence.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use rustix::fs::{FileType, Stat};

use super::{Slot, State, Store, StoreError, attrs, checked, lines};

mod collect;
mod renames;
mod sides;

use collect::Found;
use sides::Sides;

/// How long two states are compared; after that names are left out or lines are not counted.
const PATIENCE: Duration = Duration::from_secs(20);
/// How much content is read to find out whether files of one size are the same.
const READ_MAX: u64 = 1 << 30;
/// How much text all changes hold together.
const TEXT_MAX: usize = 4 << 20;

/// What happened to one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the later state has it.
    Added,
    /// Only the earlier state has it.
    Removed,
    /// Content differs.
    Modified,
    /// A file became a folder, a link became a file.
    TypeChanged,
    /// Only mode or owner differ.
    ModeChanged,
    /// The same content, alone or as a whole folder, had another name before.
    Renamed,
}

/// What one state has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Where a symbolic link points.
    pub target: Option<Vec<u8>>,
}

/// Changed lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Text {
    /// Not asked for, or there are none.
    #[default]
    None,
    /// Hunks of a unified diff.
    Hunks(Vec<u8>),
    /// One side is no text.
    Binary,
    /// One side has more than 1 MiB.
    Large,
    /// All changes together have too much text, or took too long.
    LeftOut,
}

/// One path that differs. An mtime alone is no difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// As the sandbox sees it, absolute.
    pub path: Vec<u8>,
    /// Its name before, where it was renamed.
    pub from: Option<Vec<u8>>,
    /// What happened.
    pub kind: ChangeKind,
    /// What lies below a folder that was renamed whole.
    pub below: u64,
    /// The earlier state's.
    pub before: Option<Side>,
    /// The later state's.
    pub after: Option<Side>,
    /// Of text files up to 1 MiB.
    pub added_lines: Option<u64>,
    /// Of text files up to 1 MiB.
    pub removed_lines: Option<u64>,
    /// Size of the regular file before.
    pub bytes_before: Option<u64>,
    /// Size of the regular file after.
    pub bytes_after: Option<u64>,
    /// The lines themselves, where asked for.
    pub text: Text,
}

/// What is wanted of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffWanted {
    /// Further changes are only counted.
    pub most: usize,
    /// Whether renames are guessed.
    pub renames: bool,
    /// Whether changed lines are kept.
    pub text: bool,
}

/// A comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// By path.
    pub changes: Vec<Change>,
    /// How many more there are.
    pub more: u64,
    /// What a reader should know of how it was made, one sentence each.
    pub notes: Vec<String>,
}

impl Store {
    /// What differs between two states, by path.
    pub fn diff(
        &self,
        from: &State,
        to: &State,
        slots: &[Slot],
        wanted: &DiffWanted,
    ) -> Result<Diff, StoreError> {
        checked(slots)?;
        let budget = Budget::new();
        let mut found = Found::new(wanted.most);
        let mut sides = Vec::new();
        for (index, slot) in slots.iter().enumerate() {
            let (before, after) = (from.roots(self, &slot.name)?, to.roots(self, &slot.name)?);
            let (slot_sides, root) = Sides::open(&before, &after, &slot.path)?;
            collect::run(&slot_sides, index, root, &budget, &mut found)?;
            sides.push(slot_sides);
        }
        found.raw.sort_by(|a, b| a.path.cmp(&b.path));
        let renames = match wanted.renames {
            true => renames::guess(&found.raw, &sides, &budget, found.more == 0)?,
            false => renames::Renames::default(),
        };
        let mut describer = Describer {
            sides: &sides,
            budget: &budget,
            text: wanted.text,
            room: TEXT_MAX,
            uncounted: 0,
        };
        let mut changes = Vec::new();
        for (index, raw) in found.raw.iter().enumerate() {
            if !renames.gone.contains(&index) {
                let from = renames.from.get(&index);
                let from = from.map(|(from, below)| (&found.raw[*from], *below));
                changes.push(describer.change(raw, from)?);
            }
        }
        let notes = notes(&budget, &found, describer.uncounted);
        Ok(Diff {
            changes,
            more: found.more,
            notes,
        })
    }
}

fn notes(budget: &Budget, found: &Found, uncounted: u64) -> Vec<String> {
    let mut notes = Vec::new();
    if found.cut {
        let seconds = PATIENCE.as_secs();
        notes.push(format!(
            "the comparison was ended after {seconds} s: there are changes that are not listed"
        ));
    }
    if budget.guessed.get() > 0 {
        notes.push(format!(
            "{} large files were compared by size and time only",
            budget.guessed.get()
        ));
    }
    if uncounted > 0 {
        notes.push(format!(
            "the lines of {uncounted} files are left out: together they have too many"
        ));
    }
    notes
}

/// What a comparison may still use.
struct Budget {
    deadline: Instant,
    read: Cell<u64>,
    guessed: Cell<u64>,
}

impl Budget {
    fn new() -> Budget {
        Budget {
            deadline: Instant::now() + PATIENCE,
            read: Cell::new(READ_MAX),
            guessed: Cell::new(0),
        }
    }

    fn over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Whether so much may be read; then it counts as read.
    fn take(&self, bytes: u64) -> bool {
        let left = self.read.get().checked_sub(bytes);
        match left {
            Some(left) if !self.over() => {
                self.read.set(left);
                true
            }
            _ => false,
        }
    }
}

/// One path that differs, before it is described.
struct Raw {
    /// Whose paths it is below.
    slot: usize,
    /// Absolute.
    path: Vec<u8>,
    kind: ChangeKind,
    before: Option<Part>,
    after: Option<Part>,
}

/// In which layer a side lies, and what it is.
#[derive(Clone, Copy)]
struct Part {
    layer: usize,
    stat: Stat,
}

impl Part {
    /// Of a regular file.
    fn size(&self) -> Option<u64> {
        attrs::is_regular(&self.stat).then_some(self.stat.st_size as u64)
    }

    fn is_dir(&self) -> bool {
        attrs::is_dir(&self.stat)
    }

    fn is_link(&self) -> bool {
        attrs::kind(&self.stat) == FileType::Symlink
    }

    fn same_mode(&self, other: &Part) -> bool {
        let mode = |stat: &Stat| (stat.st_mode, stat.st_uid, stat.st_gid);
        mode(&self.stat) == mode(&other.stat)
    }
}

struct Describer<'a> {
    sides: &'a [Sides],
    budget: &'a Budget,
    text: bool,
    /// Bytes of text that still fit.
    room: usize,
    /// Files whose lines did not.
    uncounted: u64,
}

impl Describer<'_> {
    fn change(&mut self, raw: &Raw, from: Option<(&Raw, u64)>) -> Result<Change, StoreError> {
        let (before_at, kind) = match from {
            Some((from, _)) => (from, ChangeKind::Renamed),
            None => (raw, raw.kind),
        };
        let side = |at: &Raw, part: Option<Part>| -> Result<Option<Side>, StoreError> {
            let Some(part) = part else { return Ok(None) };
            let target = match part.is_link() {
                true => Some(self.sides[at.slot].target(&at.path, &part)?),
                false => None,
            };
            let (mode, uid, gid) = (part.stat.st_mode, part.stat.st_uid, part.stat.st_gid);
            Ok(Some(Side {
                mode,
                uid,
                gid,
                target,
            }))
        };
        let mut change = Change {
            path: raw.path.clone(),
            from: from.map(|(from, _)| from.path.clone()),
            kind,
            below: from.map_or(0, |(_, below)| below),
            before: side(before_at, before_at.before)?,
            after: side(raw, raw.after)?,
            added_lines: None,
            removed_lines: None,
            bytes_before: before_at.before.and_then(|part| part.size()),
            bytes_after: raw.after.and_then(|part| part.size()),
            text: Text::None,
        };
        if !matches!(kind, ChangeKind::ModeChanged | ChangeKind::Renamed) {
            self.lines(raw, &mut change)?;
        }
        Ok(change)
    }

    fn lines(&mut self, raw: &Raw, change: &mut Change) -> Result<(), StoreError> {
        let sizes = || {
            [change.bytes_before, change.bytes_after]
                .into_iter()
                .flatten()
        };
        if sizes().count() == 0 {
            return Ok(());
        }
        if sizes().any(|size| size > lines::COUNTED_MAX) {
            change.text = self.asked(Text::Large);
            return Ok(());
        }
        if self.budget.over() || (self.text && self.room == 0) {
            self.uncounted += 1;
            change.text = self.asked(Text::LeftOut);
            return Ok(());
        }
        let read = |part: Option<Part>| match part.filter(|part| part.size().is_some()) {
            Some(part) => self.sides[raw.slot].content(&raw.path, &part),
            None => Ok(Vec::new()),
        };
        let (before, after) = (read(raw.before)?, read(raw.after)?);
        let Some(found) = lines::compare(&before, &after, self.text) else {
            change.text = self.asked(Text::Binary);
            return Ok(());
        };
        change.added_lines = Some(found.added);
        change.removed_lines = Some(found.removed);
        match found.hunks.len() <= self.room {
            true => self.room -= found.hunks.len(),
            false => {
                self.room = 0;
                self.uncounted += 1;
            }
        }
        change.text = match self.room {
            0 if !found.hunks.is_empty() => self.asked(Text::LeftOut),
            _ => self.asked(Text::Hunks(found.hunks)),
        };
        Ok(())
    }

    fn asked(&self, text: Text) -> Text {
        if self.text { text } else { Text::None }
    }
}
