//! Mounts an overlay with the options of a slot and renames a folder of its lower, as `git mv` does
//! from an agent's second tick on.

use std::{
    ffi::CString,
    io,
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::{Check, State};

pub(super) fn check(data_dir: &Path) -> Check {
    let place = data_dir.join(".doctor");
    // A run that was killed may have left it mounted.
    let _ = unmount(place.join("merged"), UnmountFlags::DETACH);
    let _ = std::fs::remove_dir_all(&place);
    let tried = attempt(&place);
    let _ = std::fs::remove_dir_all(&place);
    match tried {
        Ok(()) => Check::ok(
            "overlay",
            "overlayfs mounts, and renames folders of lower layers",
        ),
        Err((action, error)) => Check::not(
            State::Fail,
            "overlay",
            format!("{action} failed: {error}"),
            "load the kernel module overlay (modprobe overlay), and put data_dir on ext4, xfs or \
             btrfs; in a container, run it privileged",
        ),
    }
}

fn attempt(place: &Path) -> Result<(), (&'static str, io::Error)> {
    let [lower, upper, work, merged] =
        ["lower", "upper", "work", "merged"].map(|name| place.join(name));
    let made = [
        lower.join("folder"),
        upper.clone(),
        work.clone(),
        merged.clone(),
    ];
    for folder in &made {
        std::fs::create_dir_all(folder).map_err(|error| ("making a folder", error))?;
    }
    std::fs::write(lower.join("folder/file"), "x").map_err(|error| ("writing a file", error))?;
    let options = options(&lower, &upper, &work).map_err(|error| ("mounting", error))?;
    mount(
        "overlay",
        &merged,
        "overlay",
        MountFlags::NOSUID | MountFlags::NODEV,
        &*options,
    )
    .map_err(|error| ("mounting an overlay with redirect_dir=on", error.into()))?;
    let renamed = rename(&merged);
    unmount(&merged, UnmountFlags::DETACH).map_err(|error| ("unmounting", error.into()))?;
    renamed.map_err(|error| ("renaming a folder of a lower layer", error))
}

fn options(lower: &Path, upper: &Path, work: &Path) -> io::Result<CString> {
    let [lower, upper, work] = [lower, upper, work].map(Path::display);
    let text = format!(
        "lowerdir={lower},upperdir={upper},workdir={work},\
         redirect_dir=on,metacopy=off,index=off,xino=off,volatile"
    );
    CString::new(text).map_err(io::Error::other)
}

fn rename(merged: &Path) -> io::Result<()> {
    let to: PathBuf = merged.join("renamed");
    std::fs::rename(merged.join("folder"), &to)?;
    std::fs::read(to.join("file")).map(drop)
}
