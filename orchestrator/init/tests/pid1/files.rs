//! `Put` and `Get`: done by the agent's user, checked, bounded.

use std::time::{Duration, Instant};

use mayfly_init::protocol::{Get, Id, Notice, Order, Put, Refusal};

use crate::harness::Sandbox;

fn put(sandbox: &mut Sandbox, path: &str, bytes: &[u8], size: usize) -> Result<(), Refusal> {
    sandbox.order(&Order::Put(
        5,
        Put {
            path: path.into(),
            mode: 0o640,
            size: size as u64,
        },
    ));
    for chunk in bytes.chunks(1 << 20) {
        sandbox.order(&Order::Data(5, chunk.to_vec()));
    }
    sandbox.order(&Order::Data(5, Vec::new()));
    sandbox.done(5)
}

fn get(sandbox: &mut Sandbox, path: &str, cap: u64) -> Result<Vec<u8>, Refusal> {
    let id: Id = 6;
    sandbox.order(&Order::Get(
        id,
        Get {
            path: path.into(),
            cap,
        },
    ));
    let (mut bytes, mut ended) = (Vec::new(), false);
    loop {
        match sandbox.notice() {
            Notice::Data(6, more) => {
                assert!(!ended);
                ended = more.is_empty();
                bytes.extend(more);
            }
            Notice::Done(6, Ok(())) => {
                assert!(ended);
                return Ok(bytes);
            }
            Notice::Done(6, Err(refusal)) => return Err(refusal),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn there_and_back() {
    let mut sandbox = Sandbox::started();
    let big: Vec<u8> = (0..20_000_000u32)
        .map(|number| (number / 7) as u8)
        .collect();
    put(&mut sandbox, "/slot/new/folder/big", &big, big.len()).unwrap();
    assert!(get(&mut sandbox, "/slot/new/folder/big", big.len() as u64).unwrap() == big);
    put(&mut sandbox, "/slot/new/folder/big", b"short", 5).unwrap();
    assert_eq!(
        get(&mut sandbox, "/slot/new/folder/big", 5).unwrap(),
        b"short"
    );
    put(&mut sandbox, "/slot/empty", b"", 0).unwrap();
    assert_eq!(get(&mut sandbox, "/slot/empty", 0).unwrap(), b"");
    let outcome = sandbox.script("stat -c '%u:%g %a %F' new/folder/big new");
    assert_eq!(
        outcome.text(),
        "1000:1000 640 regular file\n1000:1000 755 directory\n"
    );
}

#[test]
fn what_is_refused() {
    let mut sandbox = Sandbox::started();
    let reason = |result: Result<(), Refusal>| result.unwrap_err().reason;
    assert_eq!(
        reason(put(&mut sandbox, "/slot/a", b"abc", 4)),
        "/slot/a was promised 4 bytes, fewer came."
    );
    assert_eq!(
        reason(put(&mut sandbox, "/slot/a", b"abc", 2)),
        "/slot/a was promised 2 bytes, more came."
    );
    assert!(reason(put(&mut sandbox, "/etc/passwd", b"abc", 3)).contains("ermission denied"));
    assert!(reason(put(&mut sandbox, "slot/a", b"abc", 3)).contains("not an absolute path"));
    assert!(reason(put(&mut sandbox, "/slot", b"abc", 3)).contains("cannot be written"));
    let made = sandbox.script(
        "ln -s /etc/hostname link; mkfifo fifo; head -c 100 /dev/zero >hundred; mkdir -m 0 shut",
    );
    assert_eq!(made.code(), Some(0));
    let began = Instant::now();
    let mut refused = |path: &str, cap| get(&mut sandbox, path, cap).unwrap_err().reason;
    assert_eq!(
        refused("/slot/link", 999),
        "/slot/link is a link, links are not followed."
    );
    assert_eq!(
        refused("/slot/fifo", 999),
        "/slot/fifo is not a regular file."
    );
    assert_eq!(refused("/slot", 999), "/slot is not a regular file.");
    assert_eq!(
        refused("/slot/hundred", 99),
        "/slot/hundred is longer than 99 bytes."
    );
    assert_eq!(refused("/slot/gone", 99), "/slot/gone does not exist.");
    assert!(refused("/slot/shut/x", 99).contains("ermission denied"));
    // /proc files say they are empty; what they hold still counts.
    assert!(refused("/proc/self/status", 10).contains("longer than 10"));
    assert!(put(&mut sandbox, "/slot/fifo", b"abc", 3).is_err());
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_link_leads_put_where_the_agent_could_write_and_nowhere_else() {
    let mut sandbox = Sandbox::started();
    assert_eq!(
        sandbox
            .script("ln -s /tmp there; ln -s /usr/bin root; mkdir /tmp/x")
            .code(),
        Some(0)
    );
    put(&mut sandbox, "/slot/there/x/f", b"abc", 3).unwrap();
    assert_eq!(get(&mut sandbox, "/tmp/x/f", 3).unwrap(), b"abc");
    assert!(put(&mut sandbox, "/slot/root/f", b"abc", 3).is_err());
}

#[test]
fn a_transfer_ends_with_the_last_program() {
    let mut sandbox = Sandbox::started();
    sandbox.start(1, &["sleep", "0.3"]);
    sandbox.order(&Order::Put(
        5,
        Put {
            path: "/slot/f".into(),
            mode: 0o600,
            size: 10,
        },
    ));
    let (mut refused, mut ended) = (false, false);
    while !(refused && ended) {
        match sandbox.notice() {
            Notice::Done(5, Err(_)) => refused = true,
            Notice::Exit(1, _) => ended = true,
            other => panic!("{other:?}"),
        }
    }
    put(&mut sandbox, "/slot/f", b"abc", 3).unwrap();
}

#[test]
fn a_transfer_goes_on_while_the_agent_is_paused() {
    let mut sandbox = Sandbox::started();
    sandbox.start(1, &["sleep", "600"]);
    let block = vec![b'x'; 1 << 20];
    let size = 24 << 20;
    sandbox.order(&Order::Put(
        5,
        Put {
            path: "/slot/f".into(),
            mode: 0o600,
            size,
        },
    ));
    for number in 0..24 {
        if number == 8 {
            sandbox.order(&Order::Pause(8));
        }
        sandbox.order(&Order::Data(5, block.clone()));
    }
    sandbox.order(&Order::Data(5, Vec::new()));
    sandbox.done(8).unwrap();
    sandbox.done(5).unwrap();
    assert_eq!(
        get(&mut sandbox, "/slot/f", size).unwrap().len() as u64,
        size
    );
    sandbox.order(&Order::Resume(9));
    sandbox.done(9).unwrap();
}
