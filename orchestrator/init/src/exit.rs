//! Init's exit codes: each says one thing, none is ever given another meaning.

/// Why init ended. The number is what the engine reports as the container's exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// The worker ordered the end.
    Ended = 0,
    /// The command line is not what [`crate::arguments::parse`] takes.
    Usage = 100,
    /// Init is not PID 1, so it must not kill "everything".
    NotFirst = 101,
    /// A system call that has to work at the start did not.
    Setup = 102,
    /// Nothing is mounted at a slot.
    SlotMissing = 103,
    /// What is mounted at a slot is not the root of an overlay.
    SlotNotOverlay = 104,
    /// A slot's overlay writes to another folder than the promised one.
    SlotUpper = 105,
    /// The control socket took no connection in time.
    NoConnection = 106,
    /// The worker closed the control socket.
    ControlClosed = 107,
    /// The worker sent a frame that breaks the contract.
    BadFrame = 108,
    /// No heartbeat came within the limit.
    NoHeartbeat = 109,
    /// The ceiling in the command line has passed.
    Ceiling = 110,
    /// The engine asked for the end with SIGTERM.
    Terminated = 111,
    /// A defect of init.
    Broken = 112,
}

const ALL: [Code; 14] = [
    Code::Ended,
    Code::Usage,
    Code::NotFirst,
    Code::Setup,
    Code::SlotMissing,
    Code::SlotNotOverlay,
    Code::SlotUpper,
    Code::NoConnection,
    Code::ControlClosed,
    Code::BadFrame,
    Code::NoHeartbeat,
    Code::Ceiling,
    Code::Terminated,
    Code::Broken,
];

impl Code {
    /// What the engine reports.
    pub fn number(self) -> i32 {
        i32::from(self as u8)
    }

    /// The code behind a number; `None` for 137 and the like, where init did not end by itself.
    pub fn of(number: i64) -> Option<Code> {
        ALL.into_iter()
            .find(|code| i64::from(code.number()) == number)
    }

    /// What happened, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Code::Ended => "ended by the worker",
            Code::Usage => "init's command line is wrong",
            Code::NotFirst => "init is not PID 1",
            Code::Setup => "init could not set itself up",
            Code::SlotMissing => "a slot is not mounted",
            Code::SlotNotOverlay => "a slot is not an overlay mount",
            Code::SlotUpper => "a slot's overlay writes to another folder than the promised one",
            Code::NoConnection => "the control socket took no connection in time",
            Code::ControlClosed => "the worker closed the control socket",
            Code::BadFrame => "the worker broke the wire contract",
            Code::NoHeartbeat => "no heartbeat came in time",
            Code::Ceiling => "the sandbox's time ceiling has passed",
            Code::Terminated => "ended by the engine",
            Code::Broken => "init failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distinct_and_lead_back() {
        for code in ALL {
            assert_eq!(Code::of(code.number().into()), Some(code));
        }
        assert_eq!(Code::of(137), None);
    }
}
