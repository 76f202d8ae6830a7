//! Images written to a file and read back: for those that no registry can give again.

use std::{io, path::Path, time::Duration};

use bollard::{
    Docker as Client, body_try_stream, errors::Error, query_parameters::ImportImageOptionsBuilder,
};
use futures_util::{StreamExt, TryStreamExt};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt},
};
use tokio_util::io::ReaderStream;

use super::{
    Docker,
    connect::status,
    failed_io,
    image::{bare, pullable},
};
use crate::sandbox::{BackendError, Origin};

/// The engine packs a large image for long before it sends the first byte, and reads one for long
/// before it answers.
pub(super) const ANSWER: Duration = Duration::from_secs(30 * 60);
/// Made durable piece by piece, so that nobody else's commit waits for all of it.
const PIECE: u64 = 16 << 20;
/// A tar archive ends in two empty blocks.
const END: usize = 1024;

impl Docker {
    pub(super) async fn save(&self, image: &str, into: &Path) -> Result<(), BackendError> {
        let client = self.client().await?.with_timeout(ANSWER);
        let failed = |error| failed_io(error, "write the image archive", into);
        let mut options = File::options();
        let options = options.write(true).read(true).create_new(true).mode(0o600);
        let mut file = options.open(into).await.map_err(failed)?;
        let mut parts = std::pin::pin!(client.export_image(image));
        let (mut size, mut synced) = (0, 0);
        loop {
            let part = match parts.next().await {
                None => break,
                Some(Ok(part)) => part,
                Some(Err(error)) if status(&error) == Some(404) => {
                    return Err(BackendError::NoImage(image.to_owned()));
                }
                Some(Err(error)) => return Err(self.failed(error, "export image", image).await),
            };
            file.write_all(&part).await.map_err(failed)?;
            size += part.len() as u64;
            if size - synced >= PIECE {
                file.flush().await.map_err(failed)?;
                file.sync_data().await.map_err(failed)?;
                synced = size;
            }
        }
        file.flush().await.map_err(failed)?;
        file.sync_all().await.map_err(failed)?;
        whole(&mut file, size).await.map_err(failed)
    }

    pub(super) async fn bring_back(&self, image: &str, from: &Origin) -> Result<(), BackendError> {
        let client = self.client().await?;
        match from {
            Origin::Registry(name) if pullable(name) => self.pull(&client, name).await?,
            Origin::Registry(_) => return Err(BackendError::NoImage(image.to_owned())),
            Origin::Archive(path) => self.load(&client, path).await?,
        }
        match client.inspect_image(image).await {
            Ok(seen) if seen.id.as_deref().map(bare) == Some(bare(image)) => Ok(()),
            Err(error) if status(&error) != Some(404) => {
                Err(self.failed(error, "inspect image", image).await)
            }
            _ => {
                tracing::error!(image, ?from, "another image came out of it");
                Err(BackendError::NoImage(image.to_owned()))
            }
        }
    }

    async fn load(&self, client: &Client, path: &Path) -> Result<(), BackendError> {
        let file = File::open(path)
            .await
            .map_err(|error| failed_io(error, "open the image archive", path))?;
        tracing::info!(path = %path.display(), "loading an image that the engine has lost");
        let body = body_try_stream(ReaderStream::with_capacity(file, 1 << 20));
        let options = ImportImageOptionsBuilder::new().quiet(true).build();
        let done = client
            .clone()
            .with_timeout(ANSWER)
            .import_image(options, body, None)
            .try_for_each(|_| async { Ok::<(), Error>(()) })
            .await;
        match done {
            Ok(()) => Ok(()),
            Err(error) => {
                let name = path.display().to_string();
                Err(self.failed(error, "load the image archive", &name).await)
            }
        }
    }
}

/// An engine that fails in the middle ends its answer like a whole one, with a message in the
/// archive's place.
async fn whole(file: &mut File, size: u64) -> io::Result<()> {
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "the engine sent a part of it");
    if size < END as u64 || !size.is_multiple_of(512) {
        return Err(cut());
    }
    file.seek(io::SeekFrom::End(-(END as i64))).await?;
    let mut end = [1; END];
    file.read_exact(&mut end).await?;
    match end == [0; END] {
        true => Ok(()),
        false => Err(cut()),
    }
}
