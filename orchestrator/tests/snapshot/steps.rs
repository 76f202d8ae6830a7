//! Random changes of a tree, for many ticks in a row.

use std::{
    fs,
    os::unix::{ffi::OsStringExt, fs as unix},
    path::{Path, PathBuf},
};

use rand::{Rng, rngs::StdRng, seq::IndexedRandom};
use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, XattrFlags};

/// One change, done alike in both trees; paths are relative.
#[derive(Debug)]
pub(crate) enum Step {
    MakeDir(PathBuf),
    Write(PathBuf, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Remove(PathBuf),
    RemoveTree(PathBuf),
    Move(PathBuf, PathBuf),
    Symlink(Vec<u8>, PathBuf),
    Link(PathBuf, PathBuf),
    Mode(PathBuf, u32),
    Owner(PathBuf, u32),
    Xattr(PathBuf, Vec<u8>),
    /// A new file of this length with a few bytes at each place.
    Sparse(PathBuf, u64, Vec<u64>),
    /// Seconds and nanoseconds, also before 1970.
    Time(PathBuf, i64, i64),
}

/// What the image has; names that the steps use too.
pub(crate) fn fill(work: &Path) {
    for dir in ["n0/n1/n2", "n1/n0", "n2"] {
        fs::create_dir_all(work.join(dir)).unwrap();
    }
    for file in ["n3", "n0/n3", "n0/n1/n3", "n0/n1/n2/n4", "n1/n2", "n2/n0"] {
        fs::write(work.join(file), file).unwrap();
    }
}

pub(crate) fn choose(random: &mut StdRng, root: &Path) -> Option<Step> {
    let (mut dirs, mut files) = (vec![], vec![]);
    list(root, Path::new(""), &mut dirs, &mut files);
    let mut parents = dirs.clone();
    parents.push(PathBuf::new());
    let new = parents.choose(random)?.join(name(random));
    let single: Vec<_> = files.iter().filter(|file| links(root, file) == 1).collect();
    let content = format!("{}\n", random.random::<u64>()).into_bytes();
    let free = |path: PathBuf| {
        let taken = fs::symlink_metadata(root.join(&path)).is_ok();
        (!taken).then_some(path)
    };
    Some(match random.random_range(0..23) {
        0..3 => Step::MakeDir(free(new)?),
        3..7 => Step::Write(dirs.iter().all(|dir| *dir != new).then_some(new)?, content),
        7 => Step::Append((*regular(root, &single).choose(random)?).clone(), content),
        8 => Step::Remove(files.choose(random)?.clone()),
        9 => Step::RemoveTree(dirs.choose(random)?.clone()),
        10..15 => {
            let from = dirs.choose(random)?.clone();
            let to = free(new)?;
            Step::Move((!to.starts_with(&from)).then_some(from)?, to)
        }
        15 => Step::Move((*single.choose(random)?).clone(), free(new)?),
        16 => Step::Symlink(content, free(new)?),
        17 => Step::Link(
            (*regular(root, &single).choose(random)?).clone(),
            free(new)?,
        ),
        18 => match random.random_bool(0.5) {
            true => Step::Mode(dirs.choose(random)?.clone(), random.random_range(0..0o1000)),
            false => Step::Owner((*single.choose(random)?).clone(), random.random_range(0..9)),
        },
        19 => Step::Xattr(dirs.choose(random)?.clone(), content),
        20 => {
            let places = [(); 3].map(|()| random.random_range(0..256) << 12);
            let length = random.random_range(0..2 << 20);
            Step::Sparse(free(new)?, length, places.into())
        }
        21 => Step::Xattr((*regular(root, &single).choose(random)?).clone(), content),
        _ => {
            let file = (*regular(root, &single).choose(random)?).clone();
            let seconds = random.random_range(-1 << 30..1 << 32);
            Step::Time(file, seconds, random.random_range(0..1_000_000_000))
        }
    })
}

fn name(random: &mut StdRng) -> PathBuf {
    let mut name = b"n".to_vec();
    name.push(random.random_range(b'0'..=b'9'));
    if random.random_bool(0.2) {
        name.push(random.random_range(0x80..=0xff));
    }
    std::ffi::OsString::from_vec(name).into()
}

fn regular<'a>(root: &Path, files: &[&'a PathBuf]) -> Vec<&'a PathBuf> {
    let is_file = |path: &&&PathBuf| {
        let meta = fs::symlink_metadata(root.join(path)).unwrap();
        meta.is_file()
    };
    files.iter().filter(is_file).copied().collect()
}

fn links(root: &Path, file: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(root.join(file)).unwrap().nlink()
}

fn list(root: &Path, dir: &Path, dirs: &mut Vec<PathBuf>, files: &mut Vec<PathBuf>) {
    let mut items: Vec<_> = fs::read_dir(root.join(dir))
        .unwrap()
        .map(|item| item.unwrap())
        .collect();
    items.sort_by_key(|item| item.file_name());
    for item in items {
        let path = dir.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            list(root, &path, dirs, files);
            dirs.push(path);
        } else {
            files.push(path);
        }
    }
}

pub(crate) fn apply(root: &Path, step: &Step) {
    match step {
        Step::MakeDir(path) => fs::create_dir(root.join(path)).unwrap(),
        Step::Write(path, content) => {
            let path = root.join(path);
            let _ = fs::remove_file(&path);
            fs::write(path, content).unwrap();
        }
        Step::Append(path, content) => {
            use std::io::Write;
            let mut file = fs::OpenOptions::new()
                .append(true)
                .open(root.join(path))
                .unwrap();
            file.write_all(content).unwrap();
        }
        Step::Remove(path) => fs::remove_file(root.join(path)).unwrap(),
        Step::RemoveTree(path) => fs::remove_dir_all(root.join(path)).unwrap(),
        Step::Move(from, to) => fs::rename(root.join(from), root.join(to)).unwrap(),
        Step::Symlink(target, path) => {
            let target = std::ffi::OsString::from_vec(target.clone());
            unix::symlink(target, root.join(path)).unwrap();
        }
        Step::Link(from, to) => fs::hard_link(root.join(from), root.join(to)).unwrap(),
        Step::Mode(path, mode) => {
            let mode = Mode::from_raw_mode(*mode);
            rustix::fs::chmod(root.join(path), mode).unwrap();
        }
        Step::Owner(path, id) => {
            let owner = (Some(Uid::from_raw(*id)), Some(Gid::from_raw(*id)));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(CWD, root.join(path), owner.0, owner.1, flags).unwrap();
        }
        Step::Sparse(path, length, places) => {
            use std::os::unix::fs::FileExt;
            let file = fs::File::create_new(root.join(path)).unwrap();
            file.set_len(*length).unwrap();
            for at in places.iter().filter(|at| *at + 4 <= *length) {
                file.write_all_at(b"data", *at).unwrap();
            }
        }
        Step::Time(path, tv_sec, tv_nsec) => {
            let time = rustix::fs::Timespec {
                tv_sec: *tv_sec,
                tv_nsec: *tv_nsec,
            };
            let times = rustix::fs::Timestamps {
                last_access: time,
                last_modification: time,
            };
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(CWD, root.join(path), &times, flags).unwrap();
        }
        Step::Xattr(path, value) => {
            let path = root.join(path);
            rustix::fs::setxattr(path, "user.mark", value, XattrFlags::empty()).unwrap();
        }
    }
}
