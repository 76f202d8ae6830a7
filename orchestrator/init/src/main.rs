//! PID 1 of every sandbox: out of the agent's reach, it runs programs, moves files and ends
//! everything in time, whether or not anybody outside still lives.

mod control;
mod cut;
mod deadline;
mod feed;
mod files;
mod forward;
mod kernel;
mod mounts;
mod oom;
mod pause;
mod processes;
mod program;
mod reap;
mod sandbox;
mod signals;
mod spawn;
mod transfer;

use std::io::Write;
use std::{env, fs, panic, process};

use mayfly_init::arguments::{self, CONTROL, SOCKETS};
use mayfly_init::exit::Code;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::control::Control;
use crate::deadline::Alarm;
use crate::sandbox::{Ending, Sandbox};
use crate::signals::Signals;

fn main() {
    if process::id() != 1 {
        leave((Code::NotFirst, format!("PID {}", process::id())));
    }
    panic::set_hook(Box::new(|panic| leave((Code::Broken, panic.to_string()))));
    let Err(ending) = serve();
    // No process outlives PID 1, but this does not wait for the kernel to notice.
    kernel::signal_all(libc::SIGKILL);
    leave(ending)
}

fn serve() -> Result<std::convert::Infallible, Ending> {
    fn setup(error: impl ToString) -> Ending {
        (Code::Setup, error.to_string())
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(setup)?;
    let started = deadline::now();
    env::set_current_dir("/").map_err(setup)?;
    let alarm = Alarm::new().map_err(setup)?;
    let arguments = arguments::parse(
        env::args_os()
            .skip(1)
            .map(|text| text.to_string_lossy().into()),
    )
    .map_err(|reason| (Code::Usage, reason))?;
    let ceiling = started + arguments.ceiling;
    let signals = Signals::watch().map_err(setup)?;
    let mountinfo = fs::read("/proc/self/mountinfo").map_err(setup)?;
    mounts::check(&String::from_utf8_lossy(&mountinfo), &arguments.slots)?;
    let within = arguments.connect.min(arguments.ceiling);
    let control = Control::connect(&format!("{SOCKETS}/{CONTROL}"), within)
        .map_err(|reason| (Code::NoConnection, reason))?;
    Err(Sandbox::new(&arguments, ceiling, control, signals, alarm).run())
}

/// The only way out. Nothing here has a destructor that matters: the kernel ends the sandbox.
#[allow(clippy::disallowed_methods)]
fn leave((code, detail): Ending) -> ! {
    let _ = writeln!(
        std::io::stderr(),
        "mayfly-init: {}: {detail}",
        code.meaning()
    );
    process::exit(code.number())
}
