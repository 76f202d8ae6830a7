//! A chain of twelve layers, which is when the worker merges one, and what its merge takes.

use std::{fs, os::unix::fs::FileExt as _, path::Path, time::Instant};

use mayfly_domain::{BaseId, LayerId};
use mayfly_orchestrator::snapshot::{Caps, Slot, Store};
use tempfile::TempDir;

use super::{others::settle, points::ms, trees::Tree};

const LAYERS: u64 = 12;
const CAPS: Caps = Caps {
    bytes: u64::MAX,
    inodes: u64::MAX,
    file_bytes: u64::MAX,
};

/// Layers in a store of their own.
#[derive(Debug)]
pub struct Chain {
    dir: TempDir,
    store: Store,
    base: BaseId,
    layers: Vec<LayerId>,
    slots: Vec<Slot>,
}

impl Chain {
    /// Each layer has its share of the tree's files, and writes one in ten of the one before anew.
    pub fn new(parent: &Path, tree: &Tree) -> Chain {
        let dir = tempfile::Builder::new().prefix("mc").tempdir_in(parent);
        let dir = dir.expect("a temporary folder");
        let store = Store::open(dir.path()).expect("a store");
        let (base, slots) = (BaseId::new(), Slot::defaults());
        let aside = store.begin_base(&base).expect("a base");
        for slot in &slots {
            fs::create_dir(aside.join(&slot.name)).expect("a slot");
        }
        store.finish_base(&base, &slots).expect("a base");
        let mut chain = Chain {
            dir,
            store,
            base,
            layers: Vec::new(),
            slots,
        };
        for layer in 0..LAYERS {
            chain.add(layer, tree);
        }
        chain
    }

    fn add(&mut self, number: u64, tree: &Tree) {
        let layer = LayerId::new();
        let uppers = self
            .store
            .begin(&layer, &self.base, &self.layers, &self.slots);
        let uppers = uppers.expect("a layer");
        let work = uppers.iter().find(|upper| upper.slot == "work");
        let work = &work.expect("there is such a slot").upper;
        let share = tree.files / LAYERS;
        let own = number * share..(number + 1) * share;
        let anew = own.start.saturating_sub(share)..own.start;
        for file in own.chain(anew.step_by(10)) {
            let folder = work.join(format!("d{}", file % 100));
            fs::create_dir_all(&folder).expect("a folder");
            let file = fs::File::create(folder.join(file.to_string())).expect("a file");
            let mut content = vec![number as u8; 64 << 10];
            let (mut at, length) = (0, tree.bytes / tree.files);
            while at < length {
                content.truncate((length - at) as usize);
                file.write_all_at(&content, at).expect("a written file");
                at += content.len() as u64;
            }
        }
        let sealed = self
            .store
            .seal(&layer, &self.base, &self.layers, &self.slots, &CAPS);
        assert!(sealed.expect("a seal").layer.is_some());
        self.layers.push(layer);
    }

    /// Milliseconds of one merge, which is taken away again.
    pub fn merge(&self) -> f64 {
        settle(self.dir.path());
        let into = LayerId::new();
        let began = Instant::now();
        let merged = self
            .store
            .merge(&self.base, &self.layers, &into, &self.slots);
        let took = ms(began.elapsed());
        merged.expect("a merge");
        self.store.remove_layer(&into).expect("it goes again");
        took
    }
}
