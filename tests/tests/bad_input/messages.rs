use std::{
    io::Write as _,
    os::unix::ffi::OsStrExt as _,
    process::{Output, Stdio},
    thread,
};

use mayfly_tests::server::Server;

use super::{PROGRAM, printed, refused, simulated};

const LONGEST: usize = 1 << 20;

fn by_stdin(server: &Server, agent: &str, bytes: Vec<u8>) -> Output {
    let mut command = server.command(&["agent", "send", agent, "-"]);
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // It may have heard enough before all is written.
    let writer = thread::spawn(move || drop(stdin.write_all(&bytes)));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("a writer");
    output
}

#[test]
fn what_is_no_message_is_refused_and_leaves_none() {
    let server = simulated();
    let agent = server.agent();
    let given: [(&[u8], &[&str]); 6] = [
        (b"", &["empty", "write some text"]),
        (b" \n\t", &["empty"]),
        (b"a\0b", &["NUL byte at offset 1", "as a file"]),
        (b"a\xffb", &["not valid UTF-8 at offset 1", "as a file"]),
        (
            &vec![b'a'; LONGEST + 1],
            &["more than 1048576 bytes", "as a file"],
        ),
        (&vec![b'a'; 30 * LONGEST], &["more than 1048576 bytes"]),
    ];
    for (bytes, fragments) in given {
        refused(&by_stdin(&server, &agent, bytes.to_vec()), 4, fragments);
    }
    refused(
        &server.mayfly(&["agent", "send", &agent, ""]),
        4,
        &["empty"],
    );
    refused(&server.mayfly(&["agent", "new", "-m", ""]), 4, &["empty"]);
    let mut raw = server.command(&["agent", "send", &agent]);
    raw.arg(std::ffi::OsStr::from_bytes(b"a\xff"));
    refused(&raw.output().expect("it starts"), 4, &["UTF-8 at offset 1"]);
    assert_eq!(server.sql("SELECT count(*) FROM messages"), "0");
    assert_eq!(server.sql("SELECT count(*) FROM agents"), "1");
}

#[test]
fn the_longest_message_is_answered_in_a_real_sandbox() {
    let server = Server::new(PROGRAM);
    let agent = server.agent();
    let mut text = b"wc -c <<'E'\n".to_vec();
    text.resize(LONGEST - 3, b'a');
    text.extend_from_slice(b"\nE\n");
    assert_eq!(text.len(), LONGEST);
    let output = by_stdin(&server, &agent, text);
    assert_eq!(printed(&output), (LONGEST - 14).to_string());
    server.assert_nothing_left();
}
