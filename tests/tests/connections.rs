//! The real program and the network between it and its platforms: what it says while there is none,
//! and that nothing it writes down has a token in it, however calls end.

use std::fmt::Write as _;

use mayfly_tests::{
    conversation::{Conversation, on_discord, on_slack, on_telegram},
    cutter::Cutter,
    http::{get, on_socket},
    server::Server,
};

/// A network before the platform's WebSocket, where it has one.
fn before_the_socket(there: &impl Conversation) -> Option<Cutter> {
    let url = there.socket()?;
    let place = url.strip_prefix("ws://").expect("a fake's address");
    let network = Cutter::before(place);
    there.tell_socket(format!("ws://{}", network.address()));
    Some(network)
}

/// The program before a platform behind a network that can be cut.
fn behind(there: &impl Conversation) -> (Server, Cutter, Vec<String>) {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    let (mut cutter, mut secrets) = (None, Vec::new());
    for (name, value) in there.environment() {
        let mut value = value;
        if name.ends_with("__API_URL") {
            let rest = value.strip_prefix("http://").expect("a fake's address");
            let place = rest.split('/').next().unwrap_or_default().to_owned();
            let network = Cutter::before(&place);
            value = value.replace(&place, network.address());
            cutter = Some(network);
        }
        if name.ends_with("_TOKEN") {
            secrets.push(value.clone());
        }
        server.set_env(name, &value);
    }
    (server, cutter.expect("it has an address"), secrets)
}

fn ready(server: &Server) -> (u16, String) {
    let answer = on_socket(server.data_dir(), &get("/readyz"));
    (answer.status, answer.body)
}

fn is_said_until_it_is_there(mut there: impl Conversation, name: &str) {
    let (mut server, network, _) = behind(&there);
    network.silent(true);
    server.start();
    let (status, body) = ready(&server);
    assert_eq!(status, 503, "{body}");
    assert!(body.contains(&format!("no connection to {name}")), "{body}");
    // All else goes on.
    assert!(server.mayfly(&["agent", "new"]).status.success());
    network.silent(false);
    network.cut_all();
    until_ready(&server);
    there.begin("echo hello");
    until(&server, &there, "hello");
    server.stop();
}

fn until_ready(server: &Server) {
    server.until("ready", || match ready(server) {
        (200, _) => Ok(()),
        (_, body) => Err(body),
    });
}

fn until(server: &Server, there: &impl Conversation, answer: &str) {
    server.until(answer, || {
        let texts = there.texts();
        match texts.iter().any(|text| text.contains(answer)) {
            true => Ok(()),
            false => Err(format!("{texts:?}")),
        }
    });
}

#[test]
fn rc_04_slack_is_missed_from_the_start() {
    is_said_until_it_is_there(on_slack(), "slack");
}

#[test]
fn rc_04_discord_is_missed_from_the_start() {
    is_said_until_it_is_there(on_discord(), "discord");
}

#[test]
fn rc_04_telegram_is_missed_from_the_start() {
    is_said_until_it_is_there(on_telegram(), "telegram");
}

/// A secret as it may stand in a log.
fn forms(secret: &str) -> Vec<String> {
    let bytes = secret.as_bytes();
    let (mut hex, mut percent, mut list) = (String::new(), String::new(), Vec::new());
    for byte in bytes {
        write!(hex, "{byte:02x}").expect("text");
        match byte.is_ascii_alphanumeric() || b"-_.".contains(byte) {
            true => percent.push(char::from(*byte)),
            false => write!(percent, "%{byte:02X}").expect("text"),
        }
        list.push(byte.to_string());
    }
    // The half that is the secret where an id comes first.
    let half = secret.rsplit([':', '.']).next().unwrap_or(secret);
    let tail = &secret[secret.len() / 2..];
    [secret, half, tail, &hex, &percent, &list.join(", ")]
        .map(str::to_owned)
        .to_vec()
}

/// Bytes after which a WebSocket is cut: in its handshake, its greeting, and what comes then.
const IN_A_SOCKET: [usize; 3] = [0, 180, 420];

/// Every call and every socket is cut at some byte of its answer at least once, and everything is
/// written down.
fn nothing_is_written_down(mut there: impl Conversation) {
    let (mut server, network, secrets) = behind(&there);
    server.set_env("MAYFLY__LOG__LEVEL", "trace");
    server.set_env("MAYFLY__ATTACHMENTS__FILE_MIB", "1");
    let sockets = before_the_socket(&there);
    network.cut_after([0, 20, 90, 200]);
    server.start();
    server.until("the first cuts", || match network.cuts_left() {
        0 => Ok(()),
        left => Err(left.to_string()),
    });
    until_ready(&server);
    if let Some(sockets) = &sockets {
        for bytes in IN_A_SOCKET {
            sockets.cut_after([bytes]);
            sockets.cut_all();
            server.until("a socket's cut", || match sockets.cuts_left() {
                0 => Ok(()),
                left => Err(left.to_string()),
            });
            // Waits grow with each connection that fails, and not after one that did not.
            until_ready(&server);
        }
    }
    // A first mention that nobody hears is not found later (Discord).
    until_ready(&server);
    there.begin("echo hello");
    until(&server, &there, "hello");
    for (round, bytes) in [0, 60, 150, 230].into_iter().enumerate() {
        network.cut_after([bytes, bytes + 10]);
        network.cut_all();
        if let Some(sockets) = &sockets {
            sockets.cut_after([4000 + bytes]);
        }
        there.send(&format!("echo answer {round}"), "a.txt", b"content");
        until(&server, &there, &format!("answer {round}"));
    }
    // Adapters keep their secrets to themselves; what comes by other ways only the log can take out.
    for (number, secret) in secrets.iter().enumerate() {
        let name = format!("{secret}.txt");
        there.send(&format!("echo named {number}"), &name, &[b'x'; 1_200_000]);
        until(&server, &there, &format!("named {number}"));
    }
    server.stop();
    let log = server.log();
    for wanted in ["TRACE", "a file is left out", "[secret].txt"] {
        assert!(log.contains(wanted), "{wanted} is not in the log");
    }
    // The address of Slack's socket is as good as a token, once.
    let ticket = log.lines().find(|line| line.contains("ticket="));
    assert_eq!(ticket, None);
    for secret in &secrets {
        for form in forms(secret) {
            let found = log.lines().find(|line| line.contains(&form));
            assert_eq!(found, None, "{form}");
        }
    }
}

#[test]
fn se_05_nothing_of_slacks_tokens_is_written_down_whenever_the_network_is_cut() {
    nothing_is_written_down(on_slack());
}

#[test]
fn se_05_nothing_of_discords_token_is_written_down_whenever_the_network_is_cut() {
    nothing_is_written_down(on_discord());
}

#[test]
fn se_05_nothing_of_telegrams_token_is_written_down_whenever_the_network_is_cut() {
    nothing_is_written_down(on_telegram());
}
