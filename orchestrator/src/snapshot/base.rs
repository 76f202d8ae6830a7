//! The lowest layer of an agent: what its first image has in the slots.

use std::path::{Path, PathBuf};

use mayfly_domain::BaseId;

use super::{
    SealError, Slot, Store, StoreError, begin::make, checked, durable, fix, ids_in, measure,
    notes::Notes, ops, stack::Stack, trash, tree::Tree,
};

/// What a base is called until it is whole.
const ASIDE: &str = ".base-";

impl Store {
    /// An empty folder to fill: one folder per slot, and files beside them. What an earlier
    /// attempt left is removed first.
    pub fn begin_base(&self, base: &BaseId) -> Result<PathBuf, StoreError> {
        let aside = self.base_aside(base);
        trash::remove(&aside)?;
        make(&aside)?;
        Ok(aside)
    }

    /// Takes devices, sockets, fifos, setuid and file capabilities out of what was filled in, makes
    /// it durable and visible. Legal when every slot's folder is there; repeatable.
    pub fn finish_base(&self, base: &BaseId, slots: &[Slot]) -> Result<(), StoreError> {
        checked(slots)?;
        let (aside, home) = (self.base_aside(base), self.base_dir(base));
        if home.is_dir() {
            return trash::remove(&aside);
        }
        for slot in slots {
            clean(&aside, slot)?;
        }
        let tree = Tree::open(&aside)?;
        durable::contents(&tree, measure::inodes(&tree)?)?;
        ops::rename_path(&aside, &home).map_err(|error| StoreError::io(&aside, error))?;
        durable::folder(&self.data_dir.join("b"))?;
        durable::folder(&self.data_dir.join("u"))
    }

    /// Takes back what was begun and is not finished.
    pub fn abandon_base(&self, base: &BaseId) -> Result<(), StoreError> {
        self.throw_away(&self.base_aside(base))
    }

    /// Gives a finished base another name; where one has it already, this one goes.
    pub fn rename_base(&self, from: &BaseId, to: &BaseId) -> Result<(), StoreError> {
        let (old, new) = (self.base_dir(from), self.base_dir(to));
        if new.is_dir() {
            return self.throw_away(&old);
        }
        ops::rename_path(&old, &new).map_err(|error| StoreError::io(&old, error))?;
        durable::folder(&self.data_dir.join("b"))
    }

    /// All finished bases, in no order.
    pub fn list_bases(&self) -> Result<Vec<BaseId>, StoreError> {
        ids_in(&self.data_dir.join("b"))
    }

    /// Legal when no row and no mount names the base; repeatable.
    pub fn remove_base(&self, base: &BaseId) -> Result<(), StoreError> {
        self.throw_away(&self.base_dir(base))
    }

    /// Legal when no base is being filled; repeatable.
    pub fn discard_unfinished_bases(&self) -> Result<(), StoreError> {
        let uppers = self.data_dir.join("u");
        let names: std::io::Result<Vec<_>> = std::fs::read_dir(&uppers)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let names = names.map_err(|error| StoreError::io(&uppers, error))?;
        let unfinished = names
            .iter()
            .filter(|name| name.as_encoded_bytes().starts_with(ASIDE.as_bytes()));
        for name in unfinished {
            self.throw_away(&uppers.join(name))?;
        }
        Ok(())
    }

    fn base_aside(&self, base: &BaseId) -> PathBuf {
        self.data_dir.join("u").join(format!("{ASIDE}{base}"))
    }
}

fn clean(aside: &Path, slot: &Slot) -> Result<(), StoreError> {
    let fill = aside.join(".fill");
    trash::remove(&fill)?;
    make(&fill)?;
    let tree = Tree::open(&aside.join(&slot.name))?;
    let nothing = Stack { trees: Vec::new() };
    let mut notes = Notes::default();
    let fixed = fix::run(&tree, &nothing, &Tree::open(&fill)?, &slot.path, &mut notes);
    match fixed {
        Ok(_) => trash::remove(&fill),
        Err(SealError::Store(error)) => Err(error),
        Err(other) => Err(StoreError::io(
            aside.join(&slot.name),
            std::io::Error::other(other),
        )),
    }
}
