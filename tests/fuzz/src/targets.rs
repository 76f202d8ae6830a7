//! Everything that reads bytes of strangers: what to call, what to begin with. The fuzzers and the normal tests
//! run the same functions; each panics where a promise is broken. Needs root.

use crate::{archives, frames, layouts};

/// One reader of strangers' bytes.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Panics where these bytes break a promise; answers whether they were taken.
    pub(crate) run: fn(&[u8]) -> bool,
    /// Valid inputs, the first one at least is taken.
    pub(crate) seeds: fn() -> Vec<Vec<u8>>,
}

pub(crate) const ALL: [Target; 6] = [
    Target {
        name: "layers",
        run: layouts::layers,
        seeds: layouts::layer_seeds,
    },
    Target {
        name: "documents",
        run: layouts::documents,
        seeds: layouts::document_seeds,
    },
    Target {
        name: "upload",
        run: layouts::upload,
        seeds: layouts::upload_seeds,
    },
    Target {
        name: "records",
        run: archives::records,
        seeds: archives::record_seeds,
    },
    Target {
        name: "frames",
        run: frames::frames,
        seeds: frames::seeds,
    },
    Target {
        name: "conversation",
        run: frames::conversation,
        seeds: frames::conversation_seeds,
    },
];
