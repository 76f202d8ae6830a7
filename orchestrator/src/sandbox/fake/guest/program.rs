//! One simulated program: a script, or a single command, run step by step.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use mayfly_init::protocol::{CHUNK, Exit, Id, Notice, Start, Stream};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use super::{cut::Cut, lock};
use crate::{
    clock::STALE,
    sandbox::fake::{
        shell::{self, After, Command, Target},
        tree::Tree,
    },
};

/// What comes on standard input.
pub(super) enum Input {
    Bytes(Vec<u8>),
    End,
}

/// What was decided about a program from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Signal(i32),
    OutOfMemory,
}

pub(super) struct Program {
    id: Id,
    argv: Vec<String>,
    cwd: PathBuf,
    tree: Arc<Mutex<Tree>>,
    notices: mpsc::Sender<Notice>,
    input: mpsc::UnboundedReceiver<Input>,
    streams: [Cut; 2],
    gate: Option<Gate>,
}

/// What a program passes before each step.
pub(super) struct Gate {
    pub(super) paused: watch::Receiver<bool>,
    pub(super) heard: watch::Receiver<Instant>,
}

impl Gate {
    /// Never opens once its worker was silent for too long: init would have ended the program by then, also where all
    /// of this process stood still.
    async fn open(&mut self) {
        self.paused.wait_for(|paused| !paused).await.ok();
        if self.heard.borrow().elapsed() >= STALE {
            std::future::pending::<()>().await;
        }
    }
}

const STREAMS: [(Stream, Stream); 2] = [
    (Stream::Stdout, Stream::StdoutCut),
    (Stream::Stderr, Stream::StderrCut),
];

/// What the `shell` profile's command does with its standard input.
const FROM_STDIN: &str = r#"eval "$(cat)""#;

pub(super) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

impl Program {
    pub(super) fn new(
        id: Id,
        start: Start,
        tree: Arc<Mutex<Tree>>,
        notices: mpsc::Sender<Notice>,
        input: mpsc::UnboundedReceiver<Input>,
    ) -> Self {
        let cut = || Cut::new(start.head, start.tail);
        Program {
            id,
            streams: [cut(), cut()],
            argv: start.argv,
            cwd: PathBuf::from(start.cwd),
            tree,
            notices,
            input,
            gate: None,
        }
    }

    pub(super) async fn run(mut self, mut fate: watch::Receiver<Fate>, gate: Gate, silent: bool) {
        self.gate = Some(gate);
        let mut exit = Exit {
            code: None,
            signal: None,
            oom: false,
        };
        let decided = async {
            match fate.wait_for(|fate| *fate != Fate::Open).await {
                Ok(fate) => *fate,
                Err(_) => Fate::Signal(9),
            }
        };
        tokio::select! {
            biased;
            fate = decided => {
                exit.signal = Some(if let Fate::Signal(number) = fate { number } else { 9 });
                exit.oom = fate == Fate::OutOfMemory;
            }
            code = self.work(), if !silent => exit.code = Some(code),
        }
        if exit.signal.is_none()
            && let Err(error) = lock(&self.tree).keep()
        {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "simulated slots not kept"
            );
        }
        self.finish(exit).await;
    }

    async fn work(&mut self) -> i32 {
        let argv = self.argv.clone();
        if !matches!(base_name(&argv[0]), "sh" | "bash") {
            let command = Command {
                after: After::Any,
                words: argv,
                target: Target::Stdout,
                left_behind: false,
            };
            return match self.command(&command).await {
                Ok(code) | Err(Exited(code)) => code,
            };
        }
        let given = argv.iter().skip(1).find(|word| !word.starts_with('-'));
        let script = match given.filter(|script| !script.contains(FROM_STDIN)) {
            Some(script) => script.clone(),
            None => {
                let mut all = Vec::new();
                while let Some(bytes) = self.read().await {
                    all.extend(bytes);
                }
                String::from_utf8_lossy(&all).into_owned()
            }
        };
        let commands = match shell::parse(&script) {
            Ok(commands) => commands,
            Err(reason) => {
                self.say(1, format!("{reason}\n").as_bytes()).await;
                return 2;
            }
        };
        let mut last = 0;
        for command in &commands {
            let wanted = match command.after {
                After::Any => true,
                After::Success => last == 0,
                After::Failure => last != 0,
            };
            if command.left_behind {
                last = 0;
            } else if wanted {
                match self.command(command).await {
                    Ok(code) => last = code,
                    Err(Exited(code)) => return code,
                }
            }
        }
        last
    }

    /// Carries out one command and returns its code.
    async fn command(&mut self, command: &Command) -> Result<i32, Exited> {
        self.awake().await;
        let words = &command.words;
        let name = base_name(&words[0]).to_owned();
        let done = match name.as_str() {
            "exit" => {
                let code = words.get(1).and_then(|code| code.parse().ok());
                return Err(Exited(code.unwrap_or(0)));
            }
            "sleep" => match shell::duration(words) {
                Ok(time) => {
                    self.sleep(time).await;
                    Ok(Vec::new())
                }
                Err(reason) => Err(reason),
            },
            "cat" if words.len() == 1 && command.target == Target::Stdout => {
                while let Some(bytes) = self.read().await {
                    self.say(0, &bytes).await;
                }
                Ok(Vec::new())
            }
            "cat" => {
                // What was read before a missing file is still shown.
                let mut all = Vec::new();
                let mut missing = Ok(());
                for word in &words[1..] {
                    match lock(&self.tree).read(&self.cwd.join(word)) {
                        Ok(bytes) => all.extend(bytes),
                        Err(reason) => missing = Err(reason),
                    }
                }
                match missing {
                    Ok(()) => Ok(all),
                    Err(reason) => {
                        self.put(&command.target, all).await.ok();
                        Err(format!("cat: {reason}"))
                    }
                }
            }
            _ => self.plain(&name, &words[1..]),
        };
        let shown = match done {
            Ok(output) => self.put(&command.target, output).await,
            Err(reason) => Err(reason),
        };
        Ok(match shown {
            Ok(()) => i32::from(name == "false"),
            Err(reason) => {
                self.say(1, format!("{reason}\n").as_bytes()).await;
                if reason.ends_with("not found") {
                    127
                } else {
                    1
                }
            }
        })
    }

    /// Commands that neither wait nor read.
    fn plain(&mut self, name: &str, words: &[String]) -> Result<Vec<u8>, String> {
        let mut tree = lock(&self.tree);
        let options = |word: &&String| word.starts_with('-');
        let paths: Vec<PathBuf> = words
            .iter()
            .filter(|word| !options(word))
            .map(|word| self.cwd.join(word))
            .collect();
        let flags: String = words.iter().filter(options).cloned().collect();
        let each =
            |result: Result<(), String>| result.map_err(|reason| format!("{name}: {reason}"));
        match name {
            "echo" => return Ok(format!("{}\n", words.join(" ")).into_bytes()),
            "printf" => return Ok(words.concat().replace("\\n", "\n").into_bytes()),
            "pwd" => return Ok(format!("{}\n", self.cwd.display()).into_bytes()),
            "true" | "false" => {}
            "cd" => self.cwd = paths.first().cloned().unwrap_or_else(|| "/".into()),
            "ls" => {
                let here = self.cwd.clone();
                let names = tree.list(paths.first().unwrap_or(&here));
                let names = names.map_err(|reason| format!("ls: {reason}"))?;
                return Ok(names
                    .iter()
                    .flat_map(|name| format!("{name}\n").into_bytes())
                    .collect());
            }
            "rm" => {
                for path in &paths {
                    let removed = tree.remove(path, flags.contains('r'));
                    if !flags.contains('f') {
                        each(removed)?;
                    }
                }
            }
            "mkdir" => {
                for path in &paths {
                    if flags.contains('p') {
                        each(tree.make_parents(&path.join("x")))?;
                    } else {
                        each(tree.make_folder(path))?;
                    }
                }
            }
            "mv" => match paths.as_slice() {
                [from, to] => each(tree.rename(from, to))?,
                _ => return Err("mv: two names are wanted".to_owned()),
            },
            other => return Err(format!("sh: {other}: not found")),
        }
        Ok(Vec::new())
    }

    async fn put(&mut self, target: &Target, bytes: Vec<u8>) -> Result<(), String> {
        match target {
            Target::Stdout => self.say(0, &bytes).await,
            Target::Stderr => self.say(1, &bytes).await,
            Target::Write(file) => return lock(&self.tree).write(&self.at(file), bytes, 0o644),
            Target::Append(file) => return lock(&self.tree).append(&self.at(file), &bytes),
        }
        Ok(())
    }

    fn at(&self, file: &str) -> PathBuf {
        self.cwd.join(Path::new(file))
    }

    async fn read(&mut self) -> Option<Vec<u8>> {
        match self.input.recv().await {
            Some(Input::Bytes(bytes)) => Some(bytes),
            Some(Input::End) | None => None,
        }
    }

    async fn say(&mut self, stream: usize, bytes: &[u8]) {
        self.awake().await;
        for chunk in bytes.chunks(CHUNK) {
            let now = self.streams[stream].take(chunk);
            if !now.is_empty() {
                let notice = Notice::Output(self.id, STREAMS[stream].0, now.to_vec());
                self.notices.send(notice).await.ok();
            }
        }
    }

    async fn sleep(&mut self, time: Duration) {
        tokio::time::sleep(time).await;
        self.awake().await;
    }

    async fn awake(&mut self) {
        if let Some(gate) = &mut self.gate {
            gate.open().await;
        }
    }

    async fn finish(self, exit: Exit) {
        for (cut, (stream, mark)) in self.streams.into_iter().zip(STREAMS) {
            let (dropped, kept) = cut.finish();
            if dropped > 0 {
                let count = dropped.to_be_bytes().to_vec();
                self.notices
                    .send(Notice::Output(self.id, mark, count))
                    .await
                    .ok();
            }
            for chunk in kept.chunks(CHUNK) {
                let notice = Notice::Output(self.id, stream, chunk.to_vec());
                self.notices.send(notice).await.ok();
            }
        }
        self.notices.send(Notice::Exit(self.id, exit)).await.ok();
    }
}

/// The script said `exit`.
struct Exited(i32);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn p2_a_program_whose_worker_was_silent_for_too_long_does_nothing_more() {
        let open = |heard| {
            let mut gate = Gate {
                paused: watch::channel(false).1,
                heard: watch::channel(heard).1,
            };
            gate.open().now_or_never().is_some()
        };
        assert!(open(Instant::now()));
        assert!(!open(Instant::now() - STALE));
    }
}
