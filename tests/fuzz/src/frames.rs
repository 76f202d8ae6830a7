//! Frames of init's wire contract, read by both sides, and the worker's conversation with whoever speaks as init.

use std::time::Duration;

use mayfly_init::protocol::{
    Exit, Forward, Frame, Get, HEADER, MAX_PAYLOAD, Notice, Order, Put, Ready, Refusal, Signal,
    Start, Stream, decode,
};
use mayfly_orchestrator::{
    clock::Lease,
    sandbox::control::{self, Event},
    supervise::Supervisor,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

const CAP: u64 = 1000;

/// Reads as often as there are whole frames: each says the same again, and is the same however the bytes came.
pub(crate) fn frames(bytes: &[u8]) -> bool {
    both::<Order>(bytes) + both::<Notice>(bytes) > 0
}

fn both<F: Frame + PartialEq + std::fmt::Debug>(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Ok(Some((frame, length))) = decode::<F>(bytes) {
        assert!((HEADER..=HEADER + MAX_PAYLOAD).contains(&length));
        for short in [0, HEADER - 1, HEADER, length - 1] {
            let early = decode::<F>(&bytes[..short.min(length - 1)]);
            assert!(matches!(early, Ok(None)), "{early:?}");
        }
        let mut again = Vec::new();
        frame.encode(&mut again);
        // JSON may be written in other words, which may be longer.
        if again.len() <= HEADER + MAX_PAYLOAD {
            let back = decode::<F>(&again).expect("what was read can be read again");
            assert_eq!(back.map(|(frame, _)| frame), Some(frame));
        }
        bytes = &bytes[length..];
        count += 1;
    }
    count
}

/// What a sandbox says after its `Ready`, while a program runs and a file is awaited.
pub(crate) fn conversation(bytes: &[u8]) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let held = async { tokio::time::timeout(Duration::from_secs(20), hold(bytes)).await };
    let held = runtime.block_on(held);
    held.expect("a conversation ends with its connection")
}

async fn hold(bytes: &[u8]) -> bool {
    let (ours, mut theirs) = tokio::io::duplex(1 << 16);
    let build = String::new();
    say(&mut theirs, &Notice::Ready(Ready { build })).await;
    let supervisor = Supervisor::default();
    let opened = control::open(ours, &supervisor, Lease::default(), Duration::from_secs(5));
    let (control, mut notices) = opened.await.expect("a first Ready is enough");
    let program = Start {
        argv: vec!["true".to_owned()],
        env: Vec::new(),
        cwd: "/".to_owned(),
        head: 1,
        tail: 1,
    };
    let (started, ()) = tokio::join!(control.start(program), async {
        let asked = hear(&mut theirs).await;
        let Order::Start(id, _) = asked else {
            panic!("{asked:?}")
        };
        say(&mut theirs, &Notice::Done(id, Ok(()))).await;
    });
    let program = started.expect("started");
    let speak = async {
        // The order for the file comes first, so that an answer finds who waits.
        let mut order = [0; HEADER];
        theirs.read_exact(&mut order).await.expect("the order");
        let _ = theirs.write_all(bytes).await;
        let _ = theirs.shutdown().await;
    };
    let listen = async {
        let (mut events, mut ended) = (0, false);
        while let Some((id, event)) = notices.next().await {
            assert_eq!(id, program, "only a running program is heard");
            assert!(!ended, "an exit is the last event");
            ended = matches!(event, Event::Exit(_));
            events += 1;
        }
        assert!(events * HEADER <= bytes.len());
    };
    let path = "/f";
    let (file, (), ()) = tokio::join!(control.get(path, CAP), speak, listen);
    let came = file.map(|content| content.len() as u64);
    assert!(came.as_ref().is_ok_and(|length| *length <= CAP) || came.is_err());
    came.is_ok()
}

async fn say(to: &mut DuplexStream, notice: &Notice) {
    let mut bytes = Vec::new();
    notice.encode(&mut bytes);
    to.write_all(&bytes).await.expect("taken");
}

async fn hear(from: &mut DuplexStream) -> Order {
    let mut bytes = Vec::new();
    loop {
        match decode(&bytes).expect("our own frames") {
            Some((Order::Heartbeat, length)) => drop(bytes.drain(..length)),
            Some((order, length)) => {
                assert_eq!(length, bytes.len());
                return order;
            }
            None => assert_ne!(from.read_buf(&mut bytes).await.expect("read"), 0),
        }
    }
}

fn encoded<F: Frame>(frames: &[F]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    bytes
}

const ENDED: Exit = Exit {
    code: Some(3),
    signal: None,
    oom: false,
};

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let text = || "x".to_owned();
    let orders = [
        Order::Start(
            1,
            Start {
                argv: vec![text(), "-c".to_owned()],
                env: vec![("PATH".to_owned(), "/bin".to_owned())],
                cwd: "/work".to_owned(),
                head: 9,
                tail: 1 << 40,
            },
        ),
        Order::Stdin(1, b"input".to_vec()),
        Order::CloseStdin(1),
        Order::Signal(1, Signal::Terminate),
        Order::Pause(2),
        Order::Resume(2),
        Order::Put(
            3,
            Put {
                path: "/work/a".to_owned(),
                mode: 0o644,
                size: 5,
            },
        ),
        Order::Data(3, b"bytes".to_vec()),
        Order::Data(3, Vec::new()),
        Order::Get(
            4,
            Get {
                path: text(),
                cap: 7,
            },
        ),
        Order::Heartbeat,
        Order::Forward(5, Forward { port: 8079, cap: 8 }),
        Order::End,
    ];
    let mut seeds: Vec<_> = orders
        .iter()
        .map(|order| encoded(std::slice::from_ref(order)))
        .collect();
    seeds.push(encoded(&orders));
    seeds.push(encoded(&notices(1, 4)));
    seeds
}

fn notices(program: u32, file: u32) -> Vec<Notice> {
    vec![
        Notice::Ready(Ready {
            build: "1".to_owned(),
        }),
        Notice::Output(program, Stream::Stdout, b"out".to_vec()),
        Notice::Output(program, Stream::Stderr, b"err".to_vec()),
        Notice::Output(program, Stream::StdoutCut, vec![0; 8]),
        Notice::Data(file, b"content".to_vec()),
        Notice::Data(file, Vec::new()),
        Notice::Done(file, Ok(())),
        Notice::Done(file, Err(Refusal::new("no"))),
        Notice::Exit(program, ENDED),
    ]
}

pub(crate) fn conversation_seeds() -> Vec<Vec<u8>> {
    let all = notices(1, 2);
    vec![
        encoded(&all[1..]),
        encoded(&all),
        encoded(&[
            Notice::Data(2, vec![7; 999]),
            Notice::Data(2, vec![7; 2]),
            Notice::Exit(1, ENDED),
            Notice::Exit(1, ENDED),
            Notice::Output(1, Stream::Stdout, b"late".to_vec()),
        ]),
    ]
}
