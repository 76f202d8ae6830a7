//! First and last bytes of a stream, the count of those between.

use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Cut {
    head: u64,
    tail: usize,
    kept: VecDeque<u8>,
    dropped: u64,
}

impl Cut {
    pub(super) fn new(head: u64, tail: u64) -> Self {
        Cut {
            head,
            tail: usize::try_from(tail).unwrap_or(usize::MAX),
            kept: VecDeque::new(),
            dropped: 0,
        }
    }

    /// What passes on now.
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let now = bytes
            .len()
            .min(usize::try_from(self.head).unwrap_or(usize::MAX));
        let (now, later) = bytes.split_at(now);
        self.head -= now.len() as u64;
        self.kept.extend(later);
        let over = self.kept.len().saturating_sub(self.tail);
        self.kept.drain(..over);
        self.dropped += over as u64;
        now
    }

    /// At the end: the count of dropped bytes and the kept ones.
    pub(super) fn finish(self) -> (u64, Vec<u8>) {
        (self.dropped, self.kept.into())
    }
}
