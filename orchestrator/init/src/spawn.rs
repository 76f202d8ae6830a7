//! Children of init: each in its own session, as the agent's user, with no capability and no
//! handle but its standard streams. The parent never waits for a child, since one that has
//! changed its user can be stopped by the agent.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fs, io};

use mayfly_init::protocol::{Refusal, Start};
use rustix::fs::{Gid, Mode, OFlags, Uid, open};
use rustix::io::{Errno, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{DumpableBehavior, Pid, chdir, set_dumpable_behavior, setsid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::kernel;

/// Above init's own, so that the kernel takes a program before it takes PID 1.
const OOM_SCORE: &str = "500";
/// A report is one sentence.
const LONGEST_REPORT: usize = 4096;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Who children are.
#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// What a child says before it becomes a program, or instead: nothing, or why it failed.
pub(crate) struct Report {
    pipe: OwnedFd,
    text: Vec<u8>,
}

impl Report {
    /// `None` until the child has become its program or has ended.
    pub(crate) fn step(&mut self) -> Option<Result<(), Refusal>> {
        let mut buffer = [0; LONGEST_REPORT];
        loop {
            match read(&self.pipe, &mut buffer) {
                Ok(0) if self.text.is_empty() => return Some(Ok(())),
                Ok(0) => return Some(Err(Refusal::new(String::from_utf8_lossy(&self.text)))),
                Ok(count) if self.text.len() + count <= LONGEST_REPORT => {
                    self.text.extend_from_slice(&buffer[..count]);
                }
                Err(Errno::AGAIN) => return None,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return Some(Err(Refusal::new("A child's report is broken."))),
            }
        }
    }
}

impl AsFd for Report {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Runs `work` in a child as `user`; its error becomes the report.
pub(crate) fn child(
    user: User,
    stdio: [OwnedFd; 3],
    work: impl FnOnce() -> Result<(), String>,
) -> Result<(Pid, Report), Refusal> {
    let (pipe, child_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
        .map_err(|error| Refusal::new(format!("No pipe could be made: {error}.")))?;
    match kernel::fork() {
        Err(error) => Err(Refusal::new(format!(
            "No process could be started: {error}."
        ))),
        Ok(Some(pid)) => Ok((
            pid,
            Report {
                pipe,
                text: Vec::new(),
            },
        )),
        Ok(None) => {
            let _never_into_the_parents_code = Quit;
            let report = kernel::keep_only(&stdio, &child_end);
            let result = match &report {
                Ok(_) => become_user(user)
                    .map_err(|error| format!("The user could not be changed: {error}."))
                    .and_then(|()| work()),
                Err(_) => kernel::quit(1),
            };
            if let (Ok(report), Err(sentence)) = (&report, &result) {
                let _ = write(
                    report,
                    &sentence.as_bytes()[..sentence.len().min(LONGEST_REPORT)],
                );
            }
            kernel::quit(i32::from(result.is_err()))
        }
    }
}

/// A panic in a child must not unwind into init's loop.
struct Quit;

impl Drop for Quit {
    fn drop(&mut self) {
        kernel::quit(1)
    }
}

fn become_user(user: User) -> Result<(), Errno> {
    setsid()?;
    kernel::default_signals();
    // Only while still the owner of its own /proc; without it the program is merely less likely.
    let _ = fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    // Until `exec` this is init's memory.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let _ = clear_ambient_capability_set();
    let none = CapabilitySet::empty();
    set_capabilities(
        None,
        CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        },
    )?;
    set_no_new_privs(true)
}

/// A pipe from a child; init's end does not block.
pub(crate) fn from_child() -> Result<(OwnedFd, OwnedFd), Refusal> {
    let (ours, theirs) = pipe()?;
    nonblocking(&ours)?;
    Ok((ours, theirs))
}

/// A pipe to a child; init's end does not block.
pub(crate) fn to_child() -> Result<(OwnedFd, OwnedFd), Refusal> {
    let (theirs, ours) = pipe()?;
    nonblocking(&ours)?;
    Ok((ours, theirs))
}

/// What a child reads or writes when nothing is meant for it.
pub(crate) fn null() -> Result<OwnedFd, Refusal> {
    open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| Refusal::new(format!("/dev/null cannot be opened: {error}.")))
}

fn pipe() -> Result<(OwnedFd, OwnedFd), Refusal> {
    pipe_with(PipeFlags::CLOEXEC)
        .map_err(|error| Refusal::new(format!("No pipe could be made: {error}.")))
}

fn nonblocking(fd: &OwnedFd) -> Result<(), Refusal> {
    rustix::io::ioctl_fionbio(fd, true)
        .map_err(|error| Refusal::new(format!("A pipe could not be prepared: {error}.")))
}

/// A `Start` checked and laid out before the fork.
pub(crate) struct Plan {
    program: String,
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: String,
}

impl Plan {
    pub(crate) fn new(start: &Start) -> Result<Plan, Refusal> {
        let Some(program) = start.argv.first().filter(|program| !program.is_empty()) else {
            return Err(Refusal::new("No program is named."));
        };
        if !start.cwd.starts_with('/') {
            return Err(Refusal::new(format!(
                "The working directory {:?} is not absolute.",
                start.cwd
            )));
        }
        let path = start.env.iter().rfind(|(name, _)| name == "PATH");
        let path = path.map_or(DEFAULT_PATH, |(_, path)| path);
        let candidates = if program.contains('/') {
            vec![program.clone()]
        } else {
            let folders = path.split(':').filter(|folder| !folder.is_empty());
            folders
                .map(|folder| format!("{folder}/{program}"))
                .collect()
        };
        Ok(Plan {
            program: program.clone(),
            candidates: strings(candidates)?,
            argv: strings(start.argv.iter().cloned())?,
            env: strings(
                start
                    .env
                    .iter()
                    .map(|(name, value)| format!("{name}={value}")),
            )?,
            cwd: start.cwd.clone(),
        })
    }

    /// In the child. Returns only why it could not become the program.
    pub(crate) fn exec(&self) -> String {
        if let Err(error) = chdir(&*self.cwd) {
            return sentence("The working directory", &self.cwd, error.into());
        }
        let mut worst = None;
        for path in &self.candidates {
            let error = kernel::exec(path, &self.argv, &self.env);
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {}
                io::ErrorKind::PermissionDenied => worst = Some(error),
                _ => {
                    worst = Some(error);
                    break;
                }
            }
        }
        let error = worst.unwrap_or_else(|| io::ErrorKind::NotFound.into());
        sentence("The program", &self.program, error)
    }
}

fn sentence(what: &str, name: &str, error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("{what} {name} does not exist."),
        io::ErrorKind::PermissionDenied if what == "The program" => {
            format!("{what} {name} is not executable for the agent's user.")
        }
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            format!("{what} {name} is neither a binary for this machine nor a script with #!.")
        }
        _ => format!("{what} {name} cannot be used: {error}."),
    }
}

fn strings(texts: impl IntoIterator<Item = String>) -> Result<Vec<CString>, Refusal> {
    let texts = texts.into_iter().map(CString::new);
    texts
        .collect::<Result<_, _>>()
        .map_err(|_| Refusal::new("A NUL byte stands in the arguments or the environment."))
}
