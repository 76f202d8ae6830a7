//! The static init that is mounted into every sandbox, kept by its content's hash.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

const BINARY: &[u8] = include_bytes!(env!("MAYFLY_INIT"));
const NAME: &str = "mayfly-init";

/// Writes this build's init to `data_dir/init/<sha256>/mayfly-init`, durably, unless it is there,
/// and returns the folder. A file with other content under that name is replaced.
pub fn install(data_dir: &Path) -> io::Result<PathBuf> {
    let all = data_dir.join("init");
    let folder = all.join(hex::encode(Sha256::digest(BINARY)));
    let program = folder.join(NAME);
    if fs::read(&program).is_ok_and(|found| found == BINARY) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder)?;
    let fresh = folder.join(format!(".{}", std::process::id()));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o555)
        .open(&fresh)?;
    file.write_all(BINARY)?;
    // The mode above is cut by the process's umask.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o555))?;
    file.sync_all()?;
    fs::rename(&fresh, &program)?;
    for made in [&folder, &all, data_dir] {
        fs::File::open(made)?.sync_all()?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_written_once_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let folder = install(dir.path()).unwrap();
        let program = folder.join(NAME);
        let mode = fs::metadata(&program).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o555);
        fs::remove_file(&program).unwrap();
        fs::write(&program, "torn").unwrap();
        assert_eq!(install(dir.path()).unwrap(), folder);
        assert_eq!(fs::read(&program).unwrap(), BINARY);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }
}
