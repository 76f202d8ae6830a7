//! Files of a message: given to it, and saved from its reply.

use std::{
    cell::RefCell,
    ffi::OsStr,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use mayfly_domain::{AttachmentError, AttachmentLimits, NewFile, ReplyFile, file_names, free_name};
use mayfly_orchestrator::view::{MessageView, UploadView};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::{
    client::{Client, blobs},
    exit::{Exit, Failure},
};

/// What standard input is called as a file.
const STDIN: &str = "stdin";

/// Files on their way to a server; each goes there once.
pub(crate) struct Given {
    paths: Vec<PathBuf>,
    limits: AttachmentLimits,
    done: RefCell<Vec<NewFile>>,
    /// Standard input can be read once.
    read: RefCell<bool>,
}

impl Given {
    /// Refuses what cannot be sent before anything is.
    pub(crate) fn new(paths: Vec<PathBuf>, limits: AttachmentLimits) -> Result<Given, Failure> {
        limits.check_count(paths.len()).map_err(refused)?;
        for path in paths.iter().filter(|path| !is_stdin(path)) {
            let found = std::fs::metadata(path).and_then(|found| match found.is_dir() {
                true => Err(io::ErrorKind::IsADirectory.into()),
                false => File::open(path).map(|_| found),
            });
            let found = found.map_err(|error| unreadable(path, &error))?;
            limits
                .check_file(&name(path), found.len())
                .map_err(refused)?;
        }
        Ok(Given {
            paths,
            limits,
            done: RefCell::default(),
            read: RefCell::default(),
        })
    }

    pub(crate) fn none() -> Given {
        Given {
            paths: Vec::new(),
            limits: AttachmentLimits::default(),
            done: RefCell::default(),
            read: RefCell::default(),
        }
    }

    /// Uploads what is not uploaded yet, and names all of it.
    pub(crate) async fn upload(&self, client: &Client) -> Result<Vec<NewFile>, Failure> {
        let done = self.done.borrow().len();
        for path in &self.paths[done..] {
            let UploadView { blob, .. } = self.upload_one(client, path).await?;
            let name = name(path);
            self.done.borrow_mut().push(NewFile { name, blob });
        }
        Ok(self.done.borrow().clone())
    }

    async fn upload_one(&self, client: &Client, path: &Path) -> Result<UploadView, Failure> {
        if is_stdin(path) {
            if self.read.replace(true) {
                let told = "standard input is read already: send the message again";
                return Err(Failure::new(Exit::Unavailable, told));
            }
            let input = io::stdin().as_fd().try_clone_to_owned();
            let input = input.map_err(|error| unreadable(path, &error))?;
            let input = tokio::fs::File::from_std(input.into());
            let content = Capped(input.take(self.limits.file_bytes() + 1));
            return Ok(client.upload(content, None).await?);
        }
        let (file, length) = blobs::open(path)
            .await
            .map_err(|error| unreadable(path, &error))?;
        Ok(client.upload(file, length).await?)
    }
}

/// Ends with an error where more comes than fits, so that an endless stream ends.
struct Capped<R>(tokio::io::Take<R>);

impl<R: AsyncRead + Unpin> AsyncRead for Capped<R> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        let read = std::pin::Pin::new(&mut self.0).poll_read(context, buffer);
        match self.0.limit() {
            0 => std::task::Poll::Ready(Err(io::Error::other(
                "standard input is longer than attachments.file_mib: send less, or raise it",
            ))),
            _ => read,
        }
    }
}

/// Saves the files of a reply into a folder, under names that are free there.
pub(crate) async fn save(
    client: &Client,
    view: &MessageView,
    folder: &Path,
) -> Result<Vec<PathBuf>, Failure> {
    let files: &[ReplyFile] = view.reply.as_ref().map_or(&[], |reply| &reply.files);
    let names = file_names(files.iter().map(|file| file.name.as_str()));
    let mut saved = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let (path, mut file) =
            create(folder, name).map_err(|error| unwritable(&folder.join(name), &error))?;
        let message = view.id.to_string();
        let fetched = client.reply_file(&message, n, &mut file).await;
        let whole = fetched
            .map_err(Failure::from)
            .and_then(|()| file.flush().map_err(|error| unwritable(&path, &error)));
        if let Err(failure) = whole {
            let _ = std::fs::remove_file(&path);
            return Err(failure);
        }
        saved.push(path);
    }
    Ok(saved)
}

/// Nothing that is there is written over, and no link followed.
fn create(folder: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    std::fs::create_dir_all(folder)?;
    loop {
        let free = free_name(name, |name| folder.join(name).symlink_metadata().is_ok());
        let path = folder.join(free);
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o644).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == OsStr::new("-")
}

fn name(path: &Path) -> String {
    match path.file_name() {
        _ if is_stdin(path) => STDIN.to_owned(),
        Some(name) => name.to_string_lossy().into_owned(),
        None => path.to_string_lossy().into_owned(),
    }
}

fn refused(error: AttachmentError) -> Failure {
    Failure::new(Exit::Refused, error)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let told = format!("{} cannot be sent: {error}", path.display());
    Failure::new(Exit::Refused, told)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let told = format!(
        "{} cannot be written: {error}; the reply is there, name another --output",
        path.display()
    );
    Failure::new(Exit::Refused, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("new");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("b")).unwrap();
        let made = |name| create(&below, name).unwrap().0;
        assert_eq!(made("a.txt"), below.join("a.txt"));
        assert_eq!(made("a.txt"), below.join("a-2.txt"));
        assert_eq!(
            create(folder.path(), "b").unwrap().0,
            folder.path().join("b-2")
        );
    }

    #[test]
    fn what_cannot_be_sent_is_refused_before_anything_is() {
        let folder = tempfile::tempdir().unwrap();
        let limits = AttachmentLimits {
            files: 2,
            file_mib: 1,
            message_mib: 1,
        };
        let big = folder.path().join("big");
        File::create(&big).unwrap().set_len((1 << 20) + 1).unwrap();
        let fault = |paths: &[&Path]| {
            let paths = paths.iter().map(|path| path.to_path_buf()).collect();
            Given::new(paths, limits)
                .err()
                .expect("refused")
                .to_string()
        };
        assert!(fault(&[&big]).contains("attachments.file_mib"));
        assert!(fault(&[folder.path()]).contains("directory"));
        assert!(fault(&[&folder.path().join("no")]).contains("No such file"));
        assert!(fault(&[Path::new("-"); 3]).contains("3 files"));
    }
}
