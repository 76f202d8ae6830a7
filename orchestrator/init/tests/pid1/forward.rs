//! The loopback port that leads to the gateway socket.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::Duration;

use mayfly_init::protocol::{Forward, Order};

use crate::harness::Sandbox;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn bytes_half_closes_and_the_cap() {
    let mut sandbox = Sandbox::prepare();
    let gateway = UnixListener::bind(sandbox.socket("gateway")).unwrap();
    sandbox.run();
    let port = free_port();
    sandbox.order(&Order::Forward(4, Forward { port, cap: 2 }));
    sandbox.done(4).unwrap();
    // A gateway that answers only after the request's end, with what it got, twice.
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut client, _) = gateway.accept().unwrap();
            let mut bytes = Vec::new();
            client.read_to_end(&mut bytes).unwrap();
            client.write_all(&bytes).unwrap();
            client.write_all(&bytes).unwrap();
        }
        gateway
    });
    let sent: Vec<u8> = (0..3_000_000u32).map(|number| (number / 3) as u8).collect();
    let mut first = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _second = TcpStream::connect(("127.0.0.1", port)).unwrap();
    thread::sleep(Duration::from_millis(200));
    let mut third = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(third.read(&mut [0]).unwrap_or(0), 0, "over the cap");
    first.write_all(&sent).unwrap();
    first.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    first.read_to_end(&mut back).unwrap();
    assert!(back == [sent.as_slice(), sent.as_slice()].concat());
    drop(_second);
    drop(server.join().unwrap());
    // Without a gateway a client is closed at once, and init goes on.
    let mut late = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(late.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(sandbox.script("echo on").text(), "on\n");
}

#[test]
fn a_port_in_use_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut sandbox = Sandbox::started();
    sandbox.order(&Order::Forward(4, Forward { port, cap: 2 }));
    assert!(
        sandbox
            .done(4)
            .unwrap_err()
            .reason
            .contains("cannot be listened on")
    );
    sandbox.order(&Order::Forward(4, Forward { port, cap: 0 }));
    assert!(sandbox.done(4).is_err());
}
