//! Reads over connections that stay open, from threads of this process.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Longest wait for a byte of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where requests go.
#[derive(Debug, Clone)]
pub enum Door {
    /// `address:port` and the token.
    Tcp(String, String),
    /// The socket of the data dir.
    Unix(PathBuf),
}

/// One connection.
pub struct Reader {
    stream: Box<dyn Stream>,
    headers: String,
    buffer: Vec<u8>,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Door {
    /// The socket in a data dir.
    pub fn of(data_dir: &Path) -> Door {
        Door::Unix(data_dir.join("mayfly.sock"))
    }

    /// A connection of its own.
    pub fn open(&self) -> io::Result<Reader> {
        let (stream, headers): (Box<dyn Stream>, _) = match self {
            Door::Tcp(address, token) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                let headers = format!("host: {address}\r\nauthorization: Bearer {token}\r\n");
                (Box::new(stream), headers)
            }
            Door::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                (Box::new(stream), "host: localhost\r\n".to_owned())
            }
        };
        Ok(Reader {
            stream,
            headers,
            buffer: Vec::new(),
        })
    }

    /// The status of one answer on a connection of its own; none where nobody listens yet.
    pub fn status(&self, path: &str) -> Option<u16> {
        let mut reader = self.open().ok()?;
        reader.get(path).ok()
    }
}

impl Reader {
    /// Reads one answer to its end and tells its status.
    pub fn get(&mut self, path: &str) -> io::Result<u16> {
        write!(self.stream, "GET {path} HTTP/1.1\r\n{}\r\n", self.headers)?;
        self.buffer.clear();
        let strange = || io::Error::new(io::ErrorKind::InvalidData, "no answer of the usual form");
        loop {
            let head = self.buffer.windows(4).position(|end| end == b"\r\n\r\n");
            if let Some(head) = head {
                let text = String::from_utf8_lossy(&self.buffer[..head]).to_lowercase();
                let length = text
                    .lines()
                    .find_map(|line| line.strip_prefix("content-length: "));
                let length: usize = length.and_then(|n| n.parse().ok()).ok_or_else(strange)?;
                let missing = (head + 4 + length).saturating_sub(self.buffer.len());
                let mut rest = (&mut self.stream).take(missing as u64);
                if rest.read_to_end(&mut self.buffer)? < missing {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
                return status.ok_or_else(strange);
            }
            let mut piece = [0; 16 << 10];
            match self.stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => self.buffer.extend_from_slice(&piece[..read]),
            }
        }
    }

    /// The body of the last answer.
    pub fn body(&self) -> &[u8] {
        let head = self.buffer.windows(4).position(|end| end == b"\r\n\r\n");
        head.map_or(&[], |head| &self.buffer[head + 4..])
    }
}

/// What a load came to.
#[derive(Debug, Default)]
pub struct Load {
    /// Milliseconds of each read, with its place in the list of kinds.
    pub reads: Vec<(usize, f64)>,
    /// From the first request to the last answer.
    pub took: Duration,
}

impl Load {
    /// Reads `paths[kind][n]` in turn for so long, over so many connections at once. An answer
    /// other than 200 ends the bench.
    pub fn of(door: &Door, connections: usize, span: Duration, paths: &[Vec<String>]) -> Load {
        let began = Instant::now();
        let one = |place: usize| {
            let mut reader = door.open().expect("the server listens");
            let mut reads = Vec::new();
            let mut turn = place;
            while began.elapsed() < span {
                let kind = turn % paths.len();
                let of_kind = &paths[kind];
                // Neighbouring connections read far apart.
                let path = &of_kind[(turn / paths.len() * 31 + place * 7) % of_kind.len()];
                let asked = Instant::now();
                let status = reader.get(path).unwrap_or_else(|e| panic!("{path}: {e}"));
                assert_eq!(status, 200, "{path}");
                reads.push((kind, asked.elapsed().as_secs_f64() * 1000.0));
                turn += 1;
            }
            reads
        };
        let reads = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..connections)
                .map(|place| scope.spawn(move || one(place)))
                .collect();
            let reads = readers.into_iter().flat_map(|reader| {
                let reads = reader.join();
                reads.expect("no reader failed")
            });
            reads.collect()
        });
        Load {
            reads,
            took: began.elapsed(),
        }
    }

    /// How many of the slowest reads, a hundredth of all, are of each kind; most first.
    pub fn slowest(&self) -> Vec<(usize, usize)> {
        let mut reads = self.reads.clone();
        reads.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        reads.truncate(self.reads.len().div_ceil(100));
        let mut kinds: Vec<(usize, usize)> = Vec::new();
        for (kind, _) in reads {
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, count)) => *count += 1,
                None => kinds.push((kind, 1)),
            }
        }
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        kinds
    }

    /// Milliseconds of the reads of one kind, or of all.
    pub fn times(&self, kind: Option<usize>) -> Vec<f64> {
        let of = |(of, _): &&(usize, f64)| kind.is_none_or(|kind| kind == *of);
        self.reads.iter().filter(of).map(|(_, ms)| *ms).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_hundredth_is_told_by_kind() {
        let mut reads: Vec<(usize, f64)> = (0..396).map(|n| (0, f64::from(n) / 1000.0)).collect();
        reads.extend([(1, 9.0), (2, 7.0), (2, 8.0), (0, 6.0)]);
        let took = Duration::from_secs(1);
        assert_eq!(Load { reads, took }.slowest(), [(2, 2), (1, 1), (0, 1)]);
        assert_eq!(Load::default().slowest(), []);
    }
}
