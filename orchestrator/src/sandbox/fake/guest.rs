//! One simulated sandbox: what init is in a real one.

mod cut;
mod program;

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mayfly_init::protocol::{CHUNK, Frame, Id, Notice, Order, Put, Ready, Refusal, Signal, decode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{Script, shell, tree::Tree};
use crate::{clock::STALE, sandbox::SandboxSpec, supervise::Supervisor};
use program::{Fate, Gate, Input, Program};

const NOTICES: usize = 8;

pub(super) struct Guest {
    tree: Arc<Mutex<Tree>>,
    script: Script,
    killed: CancellationToken,
    ceiling: Duration,
}

/// Why a conversation with the worker is over.
enum End {
    /// Ordered: changes are kept.
    Ordered,
    /// Anything else: they are not.
    Dead,
}

/// What the guest knows of a started program.
struct Started {
    input: mpsc::UnboundedSender<Input>,
    fate: watch::Sender<Fate>,
}

/// State of one conversation.
struct Talk {
    notices: mpsc::Sender<Notice>,
    supervisor: Supervisor,
    programs: HashMap<Id, Started>,
    puts: HashMap<Id, (Put, Vec<u8>)>,
    paused: watch::Sender<bool>,
    /// The last heartbeat.
    heard: watch::Sender<Instant>,
}

pub(super) fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guest {
    pub(super) fn new(
        spec: &SandboxSpec,
        tree: Tree,
        script: Script,
        killed: CancellationToken,
    ) -> Self {
        Guest {
            tree: Arc::new(Mutex::new(tree)),
            script,
            killed,
            ceiling: spec.ceiling,
        }
    }

    pub(super) async fn run(self, stream: UnixStream, supervisor: Supervisor) {
        let (reader, writer) = stream.into_split();
        let (notices, outbound) = mpsc::channel(NOTICES);
        let writing = supervisor.task("simulated sandbox's voice", write(writer, outbound));
        if !self.script.never_ready {
            let build = "fake".to_owned();
            notices.send(Notice::Ready(Ready { build })).await.ok();
        }
        let mut talk = Talk {
            notices,
            supervisor,
            programs: HashMap::new(),
            puts: HashMap::new(),
            paused: watch::channel(false).0,
            heard: watch::channel(Instant::now()).0,
        };
        let end = tokio::select! {
            end = self.listen(reader, &mut talk) => end,
            () = self.killed.cancelled() => End::Dead,
            () = tokio::time::sleep(self.ceiling) => End::Dead,
        };
        for program in talk.programs.values() {
            program.fate.send_replace(Fate::Signal(9));
        }
        drop(talk);
        if matches!(end, End::Ordered)
            && let Err(error) = lock(&self.tree).keep()
        {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "simulated slots not kept"
            );
        }
        // With the worker gone nobody reads what is left to say.
        writing.abort();
    }

    async fn listen(&self, mut reader: OwnedReadHalf, talk: &mut Talk) -> End {
        let mut buffer = Vec::new();
        loop {
            match decode::<Order>(&buffer) {
                Ok(Some((order, size))) => {
                    buffer.drain(..size);
                    match order {
                        // One that lay unread while all of this process stood still revives nothing.
                        Order::Heartbeat if talk.heard.borrow().elapsed() >= STALE => {
                            return End::Dead;
                        }
                        Order::Heartbeat => {
                            talk.heard.send_replace(Instant::now());
                        }
                        Order::End => return End::Ordered,
                        other => self.obey(other, talk).await,
                    }
                    continue;
                }
                Ok(None) => {}
                Err(_) => return End::Dead,
            }
            let stale = *talk.heard.borrow() + STALE;
            tokio::select! {
                read = reader.read_buf(&mut buffer) => match read {
                    Ok(0) | Err(_) => return End::Dead,
                    Ok(_) => {}
                },
                () = sleep_until(stale) => return End::Dead,
            }
        }
    }

    async fn obey(&self, order: Order, talk: &mut Talk) {
        let (id, result) = match order {
            Order::Start(id, start) => {
                let name = start.argv.first().map_or("", String::as_str);
                let known = shell::KNOWN.contains(&program::base_name(name));
                if !known || talk.programs.contains_key(&id) {
                    let reason = format!("cannot start {name}: not found in PATH");
                    (id, Err(Refusal::new(reason)))
                } else {
                    talk.notices.send(Notice::Done(id, Ok(()))).await.ok();
                    self.begin(id, start, talk);
                    return;
                }
            }
            Order::Stdin(id, bytes) => return talk.input(id, Input::Bytes(bytes)),
            Order::CloseStdin(id) => return talk.input(id, Input::End),
            Order::Signal(id, signal) => {
                let number = match signal {
                    Signal::Interrupt => 2,
                    Signal::Terminate => 15,
                    Signal::Kill => 9,
                };
                if let Some(program) = talk.programs.get(&id) {
                    program.fate.send_replace(Fate::Signal(number));
                }
                return;
            }
            Order::Pause(id) => {
                talk.paused.send_replace(true);
                (id, Ok(()))
            }
            Order::Resume(id) => {
                talk.paused.send_replace(false);
                (id, Ok(()))
            }
            Order::Put(id, put) => {
                talk.puts.insert(id, (put, Vec::new()));
                return;
            }
            Order::Data(id, bytes) => match self.data(id, bytes, talk) {
                Some(result) => (id, result),
                None => return,
            },
            Order::Get(id, get) => {
                let read = lock(&self.tree).read(Path::new(&get.path));
                match read {
                    Ok(bytes) if bytes.len() as u64 > get.cap => {
                        let reason = format!("{}: larger than {} bytes", get.path, get.cap);
                        (id, Err(Refusal::new(reason)))
                    }
                    Ok(bytes) => {
                        for chunk in bytes.chunks(CHUNK).chain([[].as_slice()]) {
                            talk.notices
                                .send(Notice::Data(id, chunk.to_vec()))
                                .await
                                .ok();
                        }
                        (id, Ok(()))
                    }
                    Err(reason) => (id, Err(Refusal::new(reason))),
                }
            }
            // There is no network to listen on; a gateway is never met by simulated programs.
            Order::Forward(id, _) => (id, Ok(())),
            Order::Heartbeat | Order::End => return,
        };
        talk.notices.send(Notice::Done(id, result)).await.ok();
    }

    fn begin(&self, id: Id, start: mayfly_init::protocol::Start, talk: &mut Talk) {
        let (input, inputs) = mpsc::unbounded_channel();
        let doomed = self.script.out_of_memory;
        let fate = watch::channel(if doomed {
            Fate::OutOfMemory
        } else {
            Fate::Open
        });
        let program = Program::new(id, start, self.tree.clone(), talk.notices.clone(), inputs);
        let gate = Gate {
            paused: talk.paused.subscribe(),
            heard: talk.heard.subscribe(),
        };
        let work = program.run(fate.1, gate, self.script.silent);
        talk.supervisor.task("simulated program", work);
        let fate = fate.0;
        talk.programs.insert(id, Started { input, fate });
    }

    /// Bytes of a file on its way in; the answer at its end.
    fn data(&self, id: Id, bytes: Vec<u8>, talk: &mut Talk) -> Option<Result<(), Refusal>> {
        let (put, content) = talk.puts.get_mut(&id)?;
        content.extend_from_slice(&bytes);
        let over = content.len() as u64 > put.size;
        if !bytes.is_empty() && !over {
            return None;
        }
        let (put, content) = talk.puts.remove(&id)?;
        if content.len() as u64 != put.size {
            let reason = format!("{}: {} bytes were promised", put.path, put.size);
            return Some(Err(Refusal::new(reason)));
        }
        let path = Path::new(&put.path);
        let mut tree = lock(&self.tree);
        let written = tree
            .make_parents(path)
            .and_then(|()| tree.write(path, content, put.mode));
        Some(written.map_err(Refusal::new))
    }
}

impl Talk {
    fn input(&self, id: Id, input: Input) {
        if let Some(program) = self.programs.get(&id) {
            program.input.send(input).ok();
        }
    }
}

async fn write(mut writer: OwnedWriteHalf, mut notices: mpsc::Receiver<Notice>) {
    let mut bytes = Vec::new();
    while let Some(notice) = notices.recv().await {
        bytes.clear();
        notice.encode(&mut bytes);
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
