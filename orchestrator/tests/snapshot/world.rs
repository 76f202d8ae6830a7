//! One agent's state without an engine: ticks are closures that run on the mounted slot.

use std::path::{Path, PathBuf};

use mayfly_domain::{BaseId, LayerId};
use mayfly_orchestrator::snapshot::{
    Caps, Change, Diff, DiffWanted, SealError, Sealed, Slot, State, Store,
};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

pub(crate) const CAPS: Caps = Caps {
    bytes: 64 << 20,
    inodes: 200_000,
    file_bytes: 64 << 20,
};

pub(crate) struct World {
    dir: TempDir,
    pub(crate) store: Store,
    pub(crate) base: BaseId,
    pub(crate) layers: Vec<LayerId>,
    pub(crate) slots: Vec<Slot>,
}

/// A mounted slot; unmounts when dropped.
pub(crate) struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::empty()) {
            unmount(&self.0, UnmountFlags::DETACH).expect("the test's own mount");
            assert!(std::thread::panicking(), "{}: {error}", self.0.display());
        }
    }
}

impl World {
    /// `fill` makes what the image has in `/work`.
    pub(crate) fn new(fill: impl FnOnce(&Path)) -> World {
        let dir = tempfile::Builder::new().prefix("mf").tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        let (base, slots) = (BaseId::new(), Slot::defaults());
        let aside = store.begin_base(&base).unwrap();
        for slot in &slots {
            std::fs::create_dir(aside.join(&slot.name)).unwrap();
        }
        fill(&aside.join("work"));
        store.finish_base(&base, &slots).unwrap();
        World {
            dir,
            store,
            base,
            layers: Vec::new(),
            slots,
        }
    }

    pub(crate) fn empty() -> World {
        World::new(|_| ())
    }

    /// Runs one tick in `/work` and seals it.
    pub(crate) fn tick(&mut self, run: impl FnOnce(&Path)) -> Sealed {
        let layer = self.run(run);
        let sealed = self.seal(&layer, &CAPS).unwrap();
        if sealed.layer.is_some() {
            self.layers.push(layer);
        }
        sealed
    }

    /// Runs one tick in `/work`; nothing is sealed.
    pub(crate) fn run(&self, run: impl FnOnce(&Path)) -> LayerId {
        let layer = LayerId::new();
        let uppers = self
            .store
            .begin(&layer, &self.base, &self.layers, &self.slots)
            .unwrap();
        let work = uppers.iter().find(|upper| upper.slot == "work").unwrap();
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=on,metacopy=off,index=off,xino=off,\
             volatile",
            self.lowerdir(),
            work.upper.display(),
            work.work.display(),
        );
        let mounted = self.mount(&options, MountFlags::NOSUID | MountFlags::NODEV);
        run(&mounted.0);
        drop(mounted);
        layer
    }

    pub(crate) fn seal(&self, layer: &LayerId, caps: &Caps) -> Result<Sealed, SealError> {
        self.store
            .seal(layer, &self.base, &self.layers, &self.slots, caps)
    }

    /// Looks at `/work` as the next tick will see it.
    pub(crate) fn view<T>(&self, look: impl FnOnce(&Path) -> T) -> T {
        let below = self.path("void");
        let _ = std::fs::create_dir(&below);
        let options = format!(
            "lowerdir={}:{},redirect_dir=nofollow",
            self.lowerdir(),
            below.display()
        );
        let mounted = self.mount(&options, MountFlags::RDONLY);
        look(&mounted.0)
    }

    /// All changes between two chains, without guesses.
    pub(crate) fn diff(&self, from: &[LayerId], to: &[LayerId]) -> Vec<Change> {
        let wanted = DiffWanted {
            most: usize::MAX,
            renames: false,
            text: false,
        };
        let diff = self.compare(from, to, &wanted);
        assert_eq!((diff.more, diff.notes), (0, Vec::new()));
        diff.changes
    }

    pub(crate) fn compare(&self, from: &[LayerId], to: &[LayerId], wanted: &DiffWanted) -> Diff {
        let (from, to) = (self.state(from), self.state(to));
        self.store.diff(&from, &to, &self.slots, wanted).unwrap()
    }

    pub(crate) fn state(&self, layers: &[LayerId]) -> State {
        State {
            base: self.base.clone(),
            layers: layers.to_vec(),
        }
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(below)
    }

    /// The folder of a layer's `/work`.
    pub(crate) fn layer(&self, layer: &LayerId) -> PathBuf {
        self.path("l").join(layer.as_str()).join("work")
    }

    fn lowerdir(&self) -> String {
        let lowers = self.store.lowers(&self.base, &self.layers, "work");
        let lowers = lowers.iter().map(|path| path.to_str().unwrap());
        lowers.collect::<Vec<_>>().join(":")
    }

    fn mount(&self, options: &str, flags: MountFlags) -> Mounted {
        let target = self.path("mnt");
        let options = std::ffi::CString::new(options).unwrap();
        mount("overlay", &target, "overlay", flags, options.as_c_str()).unwrap();
        Mounted(target)
    }
}
