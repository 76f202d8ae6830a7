//! Somebody else on the same file system who writes without end: a process of its own.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// Mebibytes dirtied in one go.
const MIB: usize = 256;
/// Between two goes.
const PAUSE: Duration = Duration::from_millis(200);
/// Until it has dirtied something.
const HEAD_START: Duration = Duration::from_millis(500);

/// The verb of `mayfly-bench` that runs one.
pub const VERB: &str = "neighbour";

/// Writes until it is killed.
pub fn write(path: &Path) -> io::Result<std::convert::Infallible> {
    let mut file = File::create(path)?;
    let chunk = vec![0x5a; 1 << 20];
    loop {
        file.rewind()?;
        for _ in 0..MIB {
            file.write_all(&chunk)?;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Lives until it is dropped; its file goes with it.
#[derive(Debug)]
pub struct Neighbour {
    child: Child,
    path: PathBuf,
}

impl Neighbour {
    /// Moves in.
    pub async fn beside(data_dir: &Path) -> io::Result<Neighbour> {
        let path = data_dir.with_extension("neighbour");
        // Also where the file was replaced by a newer build.
        let child = Command::new("/proc/self/exe")
            .arg(VERB)
            .arg(&path)
            .stdin(Stdio::null())
            .spawn()?;
        tokio::time::sleep(HEAD_START).await;
        Ok(Neighbour { child, path })
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}
