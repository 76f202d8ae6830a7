//! Depth-first over folders of any depth: no recursion, one path buffer.

use std::os::fd::OwnedFd;

use super::{
    StoreError, attrs,
    tree::{self, Entry, Tree, join},
};

pub(super) trait Visitor {
    /// What is known of one folder between `enter` and `leave`.
    type Node;
    type Error;

    /// Called before the folder's children; answers with the child folders to visit.
    fn enter(&mut self, path: &[u8], node: &mut Self::Node) -> Result<Kids<Self>, Self::Error>;

    /// Called after the folder's children.
    fn leave(&mut self, _path: &[u8], _node: Self::Node) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Names and nodes of child folders.
pub(super) type Kids<V> = Vec<(Vec<u8>, <V as Visitor>::Node)>;

struct Level<N> {
    node: N,
    kids: std::vec::IntoIter<(Vec<u8>, N)>,
    parent_len: usize,
}

pub(super) fn depth_first<V: Visitor>(visitor: &mut V, mut root: V::Node) -> Result<(), V::Error> {
    let mut path = Vec::new();
    let kids = visitor.enter(&path, &mut root)?.into_iter();
    let mut levels = vec![Level {
        node: root,
        kids,
        parent_len: 0,
    }];
    while let Some(level) = levels.last_mut() {
        if let Some((name, mut node)) = level.kids.next() {
            let parent_len = path.len();
            if path.is_empty() {
                path = join(b"", &name);
            } else {
                path.push(b'/');
                path.extend_from_slice(&name);
            }
            let kids = visitor.enter(&path, &mut node)?.into_iter();
            levels.push(Level {
                node,
                kids,
                parent_len,
            });
        } else if let Some(done) = levels.pop() {
            visitor.leave(&path, done.node)?;
            path.truncate(done.parent_len);
        }
    }
    Ok(())
}

/// The folders in a folder, to be visited; all else in it is handed to `each`, with the folder.
pub(super) fn folders_and(
    tree: &Tree,
    path: &[u8],
    mut each: impl FnMut(&OwnedFd, Entry) -> Result<(), StoreError>,
) -> Result<Vec<(Vec<u8>, ())>, StoreError> {
    let dir = tree.must(path)?;
    let mut kids = Vec::new();
    for entry in tree::entries(&dir).map_err(|error| tree.fault(path, error))? {
        match attrs::is_dir(&entry.stat) {
            true => kids.push((entry.name, ())),
            false => each(&dir, entry)?,
        }
    }
    Ok(kids)
}
