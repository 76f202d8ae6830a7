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

impl Arguments {
    /// The command line after the program's path. Durations are whole milliseconds.
    pub fn to_argv(&self) -> Vec<String> {
        let mut argv = Vec::new();
        for (name, value) in [
            ("--uid", u128::from(self.uid)),
            ("--gid", u128::from(self.gid)),
            ("--ceiling", self.ceiling.as_millis()),
            ("--heartbeat", self.heartbeat.as_millis()),
            ("--connect", self.connect.as_millis()),
        ] {
            argv.extend([name.to_owned(), value.to_string()]);
        }
        for (folder, upper) in &self.slots {
            argv.extend(["--slot".to_owned(), folder.clone(), upper.clone()]);
        }
        argv
    }
}

/// Reads what [`Arguments::to_argv`] wrote. Anything unknown, repeated, missing or out of range
/// is an error.
pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
    const NUMBERS: [&str; 5] = ["--uid", "--gid", "--ceiling", "--heartbeat", "--connect"];
    let mut found = [None; NUMBERS.len()];
    let mut slots = Vec::new();
    let mut args = args.into_iter();
    while let Some(name) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{name} lacks a value"));
        if name == "--slot" {
            slots.push((value()?, value()?));
            continue;
        }
        let Some(place) = NUMBERS.iter().position(|known| *known == name) else {
            return Err(format!("unknown argument {name:?}"));
        };
        let value = value()?;
        let number: u64 = value
            .parse()
            .map_err(|_| format!("{name} {value:?} is no number"))?;
        if number == 0 {
            return Err(format!("{name} must not be 0"));
        }
        if found[place].replace(number).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    let number =
        |place: usize| found[place].ok_or_else(|| format!("{} is missing", NUMBERS[place]));
    let id = |place: usize| {
        u32::try_from(number(place)?)
            .ok()
            .filter(|id| *id != u32::MAX)
            .ok_or_else(|| format!("{} is out of range", NUMBERS[place]))
    };
    Ok(Arguments {
        uid: id(0)?,
        gid: id(1)?,
        ceiling: Duration::from_millis(number(2)?),
        heartbeat: Duration::from_millis(number(3)?),
        connect: Duration::from_millis(number(4)?),
        slots,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Arguments {
        Arguments {
            uid: 1000,
            gid: 1001,
            ceiling: Duration::from_secs(915),
            heartbeat: Duration::from_secs(15),
            connect: Duration::from_millis(10_500),
            slots: vec![
                ("/work".into(), "/var/lib/a b/u=1".into()),
                ("/home/agent".into(), "--uid".into()),
            ],
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(parse(example().to_argv()), Ok(example()));
        let bare = Arguments {
            slots: Vec::new(),
            ..example()
        };
        assert_eq!(parse(bare.to_argv()), Ok(bare));
    }

    #[test]
    fn anything_else_is_an_error() {
        let with = |extra: &[&str]| {
            let extra = extra.iter().map(|text| (*text).to_owned());
            parse(example().to_argv().into_iter().chain(extra)).unwrap_err()
        };
        assert_eq!(with(&["--verbose"]), "unknown argument \"--verbose\"");
        assert_eq!(with(&["--uid", "5"]), "--uid is given twice");
        assert_eq!(with(&["--slot", "/x"]), "--slot lacks a value");
        assert_eq!(
            parse(["--uid".into(), "0".into()]).unwrap_err(),
            "--uid must not be 0"
        );
        assert_eq!(
            parse(["--uid".into(), "x".into()]).unwrap_err(),
            "--uid \"x\" is no number"
        );
        assert_eq!(parse([]).unwrap_err(), "--uid is missing");
        let mut root = example().to_argv();
        root[1] = "4294967295".into();
        assert_eq!(parse(root).unwrap_err(), "--uid is out of range");
    }
}
