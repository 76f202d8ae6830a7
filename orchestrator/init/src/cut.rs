//! Cuts a stream to its first and last bytes, in bounded memory.

use std::collections::VecDeque;

/// One stream on its way.
pub(crate) struct Cut {
    head: u64,
    tail: usize,
    kept: VecDeque<u8>,
    dropped: u64,
}

impl Cut {
    pub(crate) fn new(head: u64, tail: usize) -> Cut {
        Cut {
            head,
            tail,
            kept: VecDeque::new(),
            dropped: 0,
        }
    }

    /// The part of `bytes` to pass on now; the rest is kept for the end or dropped.
    pub(crate) fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let now = usize::try_from(self.head)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let (now, later) = bytes.split_at(now);
        self.head -= now.len() as u64;
        let useless = later.len().saturating_sub(self.tail);
        let later = &later[useless..];
        let over = (self.kept.len() + later.len()).saturating_sub(self.tail);
        self.kept.drain(..over);
        self.kept.extend(later);
        self.dropped += (useless + over) as u64;
        now
    }

    /// How many bytes were dropped before the kept end, and that end.
    pub(crate) fn finish(&mut self) -> (u64, Vec<u8>) {
        (
            std::mem::take(&mut self.dropped),
            std::mem::take(&mut self.kept).into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn first_and_last_bytes_survive_any_chunking(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            head in 0usize..100,
            tail in 0usize..100,
        ) {
            let whole = chunks.concat();
            let mut cut = Cut::new(head as u64, tail);
            let mut sent = Vec::new();
            for chunk in &chunks {
                sent.extend_from_slice(cut.take(chunk));
                prop_assert!(cut.kept.len() <= tail);
            }
            let (dropped, end) = cut.finish();
            prop_assert_eq!(&sent, &whole[..whole.len().min(head)]);
            prop_assert!(whole.ends_with(&end));
            prop_assert_eq!(end.len(), (whole.len() - sent.len()).min(tail));
            prop_assert_eq!(sent.len() + end.len() + dropped as usize, whole.len());
        }
    }
}
