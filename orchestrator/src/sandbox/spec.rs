//! The full, resolved, immutable description of one sandbox.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use mayfly_domain::{InstallationId, Limits, TickId};
use serde::{Deserialize, Serialize};

use super::{Image, Owner};
use crate::snapshot::Slot;

/// Everything one sandbox may leave behind, recorded before it is created. Unique per attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// Container name: `mayfly-<installation8>-<attempt>`.
    pub container: String,
    /// Volume name of each slot, in the slots' order: `mayfly-<installation8>-<attempt>-<slot>`.
    pub volumes: Vec<String>,
    /// Host folder of the sockets, below `/run/mayfly/<installation8>/`.
    pub sockets: PathBuf,
}

impl Names {
    /// The names of one attempt. `attempt` is unique, so no name is ever used twice.
    pub fn of(installation: InstallationId, attempt: &str, slots: &[Slot]) -> Names {
        let container = format!("{}{attempt}", Names::prefix(installation));
        let volumes = slots
            .iter()
            .map(|slot| format!("{container}-{}", slot.name))
            .collect();
        let sockets = Path::new("/run/mayfly")
            .join(installation.short())
            .join(attempt);
        Names {
            container,
            volumes,
            sockets,
        }
    }

    /// Of nothing.
    pub fn none() -> Names {
        Names {
            container: String::new(),
            volumes: Vec::new(),
            sockets: PathBuf::new(),
        }
    }

    /// The prefix of every name of an installation.
    pub fn prefix(installation: InstallationId) -> String {
        format!("mayfly-{}-", installation.short())
    }
}

/// One mutable folder of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotMount {
    /// Slot name, for example `work`.
    pub name: String,
    /// Where it is mounted, for example `/work`.
    pub path: String,
    /// Host folders, topmost first; the base is last.
    pub lowers: Vec<PathBuf>,
    /// This tick's folder, already prepared with the slot root's attributes.
    pub upper: PathBuf,
    /// Overlay's work folder, empty, on the same file system.
    pub work: PathBuf,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// Labels of everything created.
    pub owner: Owner,
    /// Label of everything created.
    pub tick: TickId,
    /// What will be created.
    pub names: Names,
    /// Resolved image.
    pub image: Image,
    /// The agent's ids inside; fixed at the agent's creation, never 0.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// Mutable folders.
    pub slots: Vec<SlotMount>,
    /// Files mounted over `/etc/passwd` and `/etc/group`, read-only.
    pub passwd: PathBuf,
    /// See `passwd`.
    pub group: PathBuf,
    /// Host folder with the static init, mounted read-only.
    pub init: PathBuf,
    /// Runtime of the engine, for example `runc`.
    pub runtime: Option<String>,
    /// Ceilings.
    pub limits: Limits,
    /// Init's hard ceiling: the wall-clock limit plus 15 s.
    pub ceiling: Duration,
}
