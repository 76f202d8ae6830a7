//! Init's command line: written by the worker, read by init, defined once.

use std::time::Duration;

/// Where the sockets' folder is mounted inside every sandbox.
pub const SOCKETS: &str = "/mayfly/run";
/// Where init's own folder is mounted inside every sandbox.
pub const PROGRAM: &str = "/mayfly/bin/mayfly-init";
/// File name of the control socket below [`SOCKETS`].
pub const CONTROL: &str = "control";
/// File name of the gateway socket below [`SOCKETS`].
pub const GATEWAY: &str = "gateway";
/// The loopback port that leads to the gateway.
pub const GATEWAY_PORT: u16 = 8079;

/// What init is told before it can be spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// User id of everything init starts; never 0.
    pub uid: u32,
    /// Group id of everything init starts; never 0.
    pub gid: u32,
    /// Init ends the sandbox this long after its own start, whatever happens.
    pub ceiling: Duration,
    /// Init ends the sandbox after this long without a heartbeat.
    pub heartbeat: Duration,
    /// Init ends if the control socket takes no connection within this time.
    pub connect: Duration,
    /// Each slot's folder and the `upperdir=` its overlay mount must have.
    pub slots: Vec<(String, String)>,
}
