//! The wire contract: what is written is read, and no bytes do harm.

use mayfly_init::protocol::*;
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..300)
}

fn orders() -> impl Strategy<Value = Order> {
    let id = any::<u32>;
    let pairs = prop::collection::vec((any::<String>(), any::<String>()), 0..4);
    let argv = prop::collection::vec(any::<String>(), 0..4);
    let start = (argv, pairs, any::<String>(), any::<u64>(), any::<u64>());
    let signal = prop_oneof![
        Just(Signal::Interrupt),
        Just(Signal::Terminate),
        Just(Signal::Kill)
    ];
    prop_oneof![
        (id(), start).prop_map(|(id, (argv, env, cwd, head, tail))| {
            Order::Start(
                id,
                Start {
                    argv,
                    env,
                    cwd,
                    head,
                    tail,
                },
            )
        }),
        (id(), bytes()).prop_map(|(id, bytes)| Order::Stdin(id, bytes)),
        id().prop_map(Order::CloseStdin),
        (id(), signal).prop_map(|(id, signal)| Order::Signal(id, signal)),
        id().prop_map(Order::Pause),
        id().prop_map(Order::Resume),
        (id(), any::<String>(), any::<u32>(), any::<u64>())
            .prop_map(|(id, path, mode, size)| Order::Put(id, Put { path, mode, size })),
        (id(), bytes()).prop_map(|(id, bytes)| Order::Data(id, bytes)),
        (id(), any::<String>(), any::<u64>())
            .prop_map(|(id, path, cap)| Order::Get(id, Get { path, cap })),
        Just(Order::Heartbeat),
        (id(), any::<u16>(), any::<u32>())
            .prop_map(|(id, port, cap)| Order::Forward(id, Forward { port, cap })),
        Just(Order::End),
    ]
}

fn notices() -> impl Strategy<Value = Notice> {
    let id = any::<u32>;
    let number = || any::<Option<i32>>();
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    let cut = prop_oneof![Just(Stream::StdoutCut), Just(Stream::StderrCut)];
    prop_oneof![
        any::<String>().prop_map(|build| Notice::Ready(Ready { build })),
        (id(), stream, bytes()).prop_map(|(id, stream, bytes)| Notice::Output(id, stream, bytes)),
        (id(), cut, any::<u64>()).prop_map(|(id, cut, count)| Notice::Output(
            id,
            cut,
            count.to_be_bytes().to_vec()
        )),
        (id(), number(), number(), any::<bool>())
            .prop_map(|(id, code, signal, oom)| Notice::Exit(id, Exit { code, signal, oom })),
        (id(), any::<Option<String>>()).prop_map(|(id, reason)| Notice::Done(
            id,
            reason.map_or(Ok(()), |r| Err(Refusal::new(r)))
        )),
        (id(), bytes()).prop_map(|(id, bytes)| Notice::Data(id, bytes)),
    ]
}

/// What a reader makes of a stream that arrives in these pieces.
fn read<F: Frame>(stream: &[u8], cuts: &[usize]) -> Vec<F> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    ends.push(stream.len());
    ends.sort_unstable();
    let (mut frames, mut buffer, mut at) = (Vec::new(), Vec::new(), 0);
    for end in ends {
        buffer.extend_from_slice(&stream[at..end]);
        at = end;
        while let Some((frame, length)) = decode(&buffer).expect("only good frames were written") {
            buffer.drain(..length);
            frames.push(frame);
        }
    }
    assert!(buffer.is_empty());
    frames
}

fn written<F: Frame>(frames: &[F]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut out));
    out
}

proptest! {
    #[test]
    fn orders_survive_any_split(
        frames in prop::collection::vec(orders(), 0..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(read::<Order>(&written(&frames), &cuts), frames);
    }

    #[test]
    fn notices_survive_any_split(
        frames in prop::collection::vec(notices(), 0..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        prop_assert_eq!(read::<Notice>(&written(&frames), &cuts), frames);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode::<Order>(&bytes);
        let _ = decode::<Notice>(&bytes);
    }

    #[test]
    fn any_payload_of_any_kind_is_read_or_refused(kind in any::<u8>(), id in any::<u32>(), payload in bytes()) {
        let mut frame = (payload.len() as u32).to_be_bytes().to_vec();
        frame.extend([VERSION, kind]);
        frame.extend(id.to_be_bytes());
        frame.extend(&payload);
        if let Ok(Some((_, length))) = decode::<Order>(&frame) {
            prop_assert_eq!(length, frame.len());
        }
        if let Ok(Some((_, length))) = decode::<Notice>(&frame) {
            prop_assert_eq!(length, frame.len());
        }
    }

    #[test]
    fn one_changed_byte_never_panics(frame in orders(), at in any::<usize>(), byte in any::<u8>()) {
        let mut bytes = written(&[frame]);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = decode::<Order>(&bytes);
    }
}

#[test]
fn a_header_is_judged_before_its_payload_is_awaited() {
    let header = |length: u32, version, kind| {
        let mut header = length.to_be_bytes().to_vec();
        header.extend([version, kind, 0, 0, 0, 0]);
        header
    };
    assert!(matches!(
        decode::<Order>(&header(0, 2, 10)),
        Err(FrameError::Version(2))
    ));
    let long = MAX_PAYLOAD as u32 + 1;
    assert!(matches!(
        decode::<Order>(&header(long, VERSION, 2)),
        Err(FrameError::TooLong(_))
    ));
    assert!(matches!(
        decode::<Order>(&header(0, VERSION, 33)),
        Err(FrameError::Kind(33))
    ));
    assert!(matches!(
        decode::<Notice>(&header(0, VERSION, 12)),
        Err(FrameError::Kind(12))
    ));
    assert!(matches!(decode::<Order>(&header(5, VERSION, 2)), Ok(None)));
}
