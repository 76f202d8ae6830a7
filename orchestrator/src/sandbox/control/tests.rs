use mayfly_init::protocol::{Frame, Notice, Ready, VERSION, decode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::*;
use crate::clock::boot_time;

const PATIENCE: Duration = Duration::from_secs(5);

/// The sandbox's end, driven by a test.
struct Peer {
    stream: UnixStream,
    buffer: Vec<u8>,
}

impl Peer {
    async fn say(&mut self, notice: Notice) {
        let mut bytes = Vec::new();
        notice.encode(&mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
    }

    /// The next order that is no heartbeat; `None` when the worker has closed.
    async fn hear(&mut self) -> Option<Order> {
        loop {
            match self.next().await {
                Some(Order::Heartbeat) => {}
                order => return order,
            }
        }
    }

    /// The next order.
    async fn next(&mut self) -> Option<Order> {
        loop {
            if let Some((order, size)) = decode(&self.buffer).unwrap() {
                self.buffer.drain(..size);
                return Some(order);
            }
            if self.stream.read_buf(&mut self.buffer).await.unwrap() == 0 {
                return None;
            }
        }
    }
}

fn program() -> Start {
    Start {
        argv: vec!["true".into()],
        env: Vec::new(),
        cwd: "/".into(),
        head: 1,
        tail: 1,
    }
}

async fn pair(lease: Lease) -> (Control, Notices, Peer) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut peer = Peer {
        stream: theirs,
        buffer: Vec::new(),
    };
    let build = "test".into();
    peer.say(Notice::Ready(Ready { build })).await;
    let (control, notices) = open(ours, &Supervisor::default(), lease, PATIENCE)
        .await
        .unwrap();
    (control, notices, peer)
}

async fn started(control: &Control, peer: &mut Peer) -> Id {
    let (id, ()) = tokio::join!(control.start(program()), async {
        match peer.hear().await {
            Some(Order::Start(id, _)) => peer.say(Notice::Done(id, Ok(()))).await,
            other => panic!("{other:?}"),
        }
    });
    id.unwrap()
}

const ENDED: Exit = Exit {
    code: Some(0),
    signal: None,
    oom: false,
};

#[tokio::test]
async fn a_program_runs_and_its_events_arrive_in_order() {
    let (control, mut notices, mut peer) = pair(Lease::default()).await;
    let id = started(&control, &mut peer).await;
    peer.say(Notice::Output(id, Stream::Stdout, b"hi".to_vec()))
        .await;
    peer.say(Notice::Exit(id, ENDED)).await;
    drop(peer);
    let said = Event::Output(Stream::Stdout, b"hi".to_vec());
    assert_eq!(notices.next().await, Some((id, said)));
    assert_eq!(notices.next().await, Some((id, Event::Exit(ENDED))));
    assert_eq!(notices.next().await, None);
    assert!(notices.fault().is_none());
    assert!(matches!(control.pause().await, Err(ControlError::Closed)));
}

#[tokio::test]
async fn a_refused_start_is_told_and_its_id_is_forgotten() {
    let (control, mut notices, mut peer) = pair(Lease::default()).await;
    let (refused, id) = tokio::join!(control.start(program()), async {
        let Some(Order::Start(id, _)) = peer.hear().await else {
            panic!()
        };
        let no = Refusal::new("true: not found");
        peer.say(Notice::Done(id, Err(no))).await;
        id
    });
    assert_eq!(refused.unwrap_err().to_string(), "true: not found");
    peer.say(Notice::Exit(id, ENDED)).await;
    drop(peer);
    assert_eq!(notices.next().await, None);
}

#[tokio::test]
async fn files_go_in_by_chunks_and_come_out_whole() {
    let (control, _notices, mut peer) = pair(Lease::default()).await;
    let content = vec![7; CHUNK + 1];
    let (put, ()) = tokio::join!(control.put("/work/a", 0o644, &content), async {
        let Some(Order::Put(id, put)) = peer.hear().await else {
            panic!()
        };
        let mut size = 0;
        loop {
            match peer.hear().await {
                Some(Order::Data(same, bytes)) if same == id && bytes.is_empty() => break,
                Some(Order::Data(same, bytes)) if same == id => size += bytes.len() as u64,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(size, put.size);
        peer.say(Notice::Done(id, Ok(()))).await;
    });
    put.unwrap();
    let (got, ()) = tokio::join!(control.get("/work/a", 10), async {
        let Some(Order::Get(id, _)) = peer.hear().await else {
            panic!()
        };
        peer.say(Notice::Data(id, b"ab".to_vec())).await;
        peer.say(Notice::Data(id, b"c".to_vec())).await;
        peer.say(Notice::Data(id, Vec::new())).await;
        peer.say(Notice::Done(id, Ok(()))).await;
    });
    assert_eq!(got.unwrap(), b"abc");
}

#[tokio::test]
async fn heartbeats_go_on_while_a_file_is_slow_to_come() {
    let lease = Lease::default();
    lease.confirm(boot_time());
    let (control, _notices, mut peer) = pair(lease).await;
    let put = Put {
        path: "/work/a".into(),
        mode: 0o644,
        size: 2,
    };
    let (more, rest) = tokio::sync::oneshot::channel();
    let content = stream::iter([Ok(b"a".to_vec())])
        .chain(stream::once(async { Ok(rest.await.expect("more comes")) }));
    let (put, ()) = tokio::join!(control.put_stream(put, content), async {
        let mut more = Some(more);
        let (mut id, mut beats) = (0, 0);
        while peer.next().await.is_some_and(|order| match order {
            Order::Put(new, _) => {
                id = new;
                true
            }
            Order::Data(_, bytes) => !bytes.is_empty(),
            Order::Heartbeat => {
                beats += 1;
                // Two in a row: time passes while the content stands still.
                if beats == 3 {
                    more.take().map(|more| more.send(b"b".to_vec()));
                }
                true
            }
            other => panic!("{other:?}"),
        }) {}
        assert!(beats >= 3);
        peer.say(Notice::Done(id, Ok(()))).await;
    });
    put.unwrap();
}

#[tokio::test]
async fn a_put_that_is_refused_midway_stops_sending() {
    let (control, _notices, mut peer) = pair(Lease::default()).await;
    let content = vec![7; 64 * CHUNK];
    let (put, ()) = tokio::join!(control.put("/work/a", 0o644, &content), async {
        let Some(Order::Put(id, _)) = peer.hear().await else {
            panic!()
        };
        peer.say(Notice::Done(id, Err(Refusal::new("/work/a: no space"))))
            .await;
    });
    assert_eq!(put.unwrap_err().to_string(), "/work/a: no space");
}

#[tokio::test]
async fn more_bytes_than_the_cap_are_refused_and_not_held() {
    let (control, _notices, mut peer) = pair(Lease::default()).await;
    let (got, ()) = tokio::join!(control.get("/work/a", 2), async {
        let Some(Order::Get(id, _)) = peer.hear().await else {
            panic!()
        };
        for _ in 0..20 {
            peer.say(Notice::Data(id, vec![0; 1000])).await;
        }
    });
    assert!(matches!(got, Err(ControlError::Refused(_))));
    assert!(lock(&control.shared.waiting).as_ref().unwrap().is_empty());
}

#[tokio::test]
async fn forged_answers_and_output_are_dropped() {
    let (control, mut notices, mut peer) = pair(Lease::default()).await;
    let id = started(&control, &mut peer).await;
    for forged in [0, id + 1, u32::MAX] {
        peer.say(Notice::Done(forged, Ok(()))).await;
        peer.say(Notice::Data(forged, vec![1; 1000])).await;
        peer.say(Notice::Output(forged, Stream::Stderr, b"x".to_vec()))
            .await;
        peer.say(Notice::Exit(forged, ENDED)).await;
    }
    peer.say(Notice::Exit(id, ENDED)).await;
    peer.say(Notice::Exit(id, ENDED)).await;
    drop(peer);
    assert_eq!(notices.next().await, Some((id, Event::Exit(ENDED))));
    assert_eq!(notices.next().await, None);
}

#[tokio::test]
async fn malformed_frames_end_the_conversation_with_the_reason() {
    let header = |length: u32, version: u8, kind: u8| {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend([version, kind, 0, 0, 0, 1]);
        bytes
    };
    let mut json = header(3, VERSION, 39);
    json.extend(b"{x}");
    for (bytes, reason) in [
        (header(0, VERSION + 1, 39), "frame of version 2"),
        (header(u32::MAX, VERSION, 40), "frame of 4294967295 bytes"),
        (header(0, VERSION, 1), "unknown frame kind 1"),
        (json, "malformed payload"),
    ] {
        let (control, mut notices, mut peer) = pair(Lease::default()).await;
        let (answer, ()) = tokio::join!(control.pause(), async {
            peer.hear().await;
            peer.stream.write_all(&bytes).await.unwrap();
        });
        assert!(matches!(answer, Err(ControlError::Closed)), "{reason}");
        assert_eq!(notices.next().await, None);
        let Some(ControlError::Frame(fault)) = notices.fault() else {
            panic!("{reason}: {:?}", notices.fault())
        };
        assert!(fault.to_string().contains(reason), "{fault}");
        assert_eq!(peer.hear().await, None, "{reason}: still open");
    }
}

#[tokio::test]
async fn the_first_frame_must_be_ready_and_come_in_time() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let mut bytes = Vec::new();
    Notice::Done(1, Ok(())).encode(&mut bytes);
    theirs.write_all(&bytes).await.unwrap();
    let end = open(ours, &Supervisor::default(), Lease::default(), PATIENCE).await;
    assert!(matches!(end, Err(ControlError::Turn(_))));

    let (ours, _theirs) = UnixStream::pair().unwrap();
    let short = Duration::from_millis(20);
    let end = open(ours, &Supervisor::default(), Lease::default(), short).await;
    assert!(matches!(end, Err(ControlError::Late(_))));
}

#[tokio::test]
async fn a_flood_waits_in_the_socket_and_not_in_memory() {
    let (control, mut notices, mut peer) = pair(Lease::default()).await;
    let id = started(&control, &mut peer).await;
    let mut frame = Vec::new();
    Notice::Output(id, Stream::Stdout, vec![b'x'; CHUNK]).encode(&mut frame);
    let flood = async {
        for _ in 0..1000 {
            peer.stream.write_all(&frame).await.unwrap();
        }
    };
    let stuck = tokio::time::timeout(Duration::from_millis(200), flood).await;
    assert!(stuck.is_err(), "64 MiB were taken in");
    assert_eq!(notices.receiver.len(), PENDING);
    // The other direction is not stuck.
    control.signal(id, Signal::Kill).await.unwrap();
    assert_eq!(peer.hear().await, Some(Order::Signal(id, Signal::Kill)));
    assert!(notices.next().await.is_some());
}

#[tokio::test]
async fn heartbeats_go_out_only_while_the_lease_is_fresh() {
    let lease = Lease::default();
    let (control, _notices, mut peer) = pair(lease.clone()).await;
    let beat = peer.stream.read_buf(&mut peer.buffer);
    let silent = tokio::time::timeout(HEARTBEAT_AND_A_BIT, beat).await;
    assert!(silent.is_err(), "a heartbeat without a lease");
    lease.confirm(boot_time());
    let beat = peer.stream.read_buf(&mut peer.buffer);
    tokio::time::timeout(HEARTBEAT_AND_A_BIT, beat)
        .await
        .expect("a heartbeat")
        .unwrap();
    assert_eq!(
        decode::<Order>(&peer.buffer).unwrap().unwrap().0,
        Order::Heartbeat
    );
    drop(control);
}

const HEARTBEAT_AND_A_BIT: Duration = Duration::from_millis(2300);

#[tokio::test]
async fn the_connection_closes_when_both_ends_are_dropped() {
    let (control, notices, mut peer) = pair(Lease::default()).await;
    let twin = control.clone();
    drop((control, notices));
    let open = tokio::time::timeout(Duration::from_millis(50), peer.hear()).await;
    assert!(open.is_err(), "closed while a Control lives");
    drop(twin);
    assert_eq!(peer.hear().await, None);
}

#[tokio::test]
async fn end_waits_until_the_sandbox_has_closed() {
    let (control, _notices, mut peer) = pair(Lease::default()).await;
    let (ended, ()) = tokio::join!(control.end(), async {
        assert_eq!(peer.hear().await, Some(Order::End));
        drop(peer);
    });
    ended.unwrap();
    control.end().await.expect("an ended sandbox ends again");
}
