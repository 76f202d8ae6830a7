use std::collections::HashMap;

use mayfly_tests::server::Server;

use super::{PROGRAM, printed, refused, simulated};

#[test]
fn what_nothing_is_called_by_is_named() {
    let server = simulated();
    let agent = server.agent();
    let long = "f".repeat(10_000);
    let none = "00000000-0000-7000-8000-000000000000";
    for bad in [
        "zz",
        "",
        " ",
        "../../etc/passwd",
        "%2e%2e",
        "a b",
        "é",
        "--",
        &long,
        none,
    ] {
        let shown: String = bad.chars().take(20).collect();
        let name = format!("\"{shown}");
        let agents = ["no agent", name.as_str(), "mayfly agent list"];
        for verb in ["show", "log", "diff", "rollback", "fork", "rm", "stop"] {
            refused(&server.mayfly(&["agent", verb, "--", bad]), 3, &agents);
        }
        refused(
            &server.mayfly(&["agent", "send", "--", bad, "date"]),
            3,
            &agents,
        );
        let ticks = ["no tick", name.as_str(), "mayfly agent log"];
        refused(&server.mayfly(&["tick", "show", "--", bad]), 3, &ticks);
        refused(
            &server.mayfly(&["agent", "rollback", &agent, "--", bad]),
            3,
            &ticks,
        );
        refused(
            &server.mayfly(&["agent", "diff", &agent, "--", bad]),
            3,
            &ticks,
        );
        let parked = ["no message", name.as_str(), "mayfly parked list"];
        refused(&server.mayfly(&["parked", "retry", "--", bad]), 3, &parked);
    }
    let near = server.mayfly(&["agent", "new", "--profile", "shel"]);
    refused(
        &near,
        3,
        &["no profile \"shel\"", "did you mean \"shell\"?"],
    );
    let far = server.mayfly(&["agent", "new", "--profile", "coder"]);
    refused(
        &far,
        3,
        &["no profile \"coder\"", "the configuration has shell"],
    );
    assert_eq!(
        server.json(&["agent", "list"]).as_array().map(Vec::len),
        Some(1)
    );
}

#[test]
fn an_end_that_several_have_asks_for_more() {
    let server = simulated();
    let mut by_end: HashMap<char, String> = HashMap::new();
    let (end, first, second) = loop {
        let agent = server.agent();
        let end = agent.chars().last().expect("an id has an end");
        if let Some(first) = by_end.insert(end, agent.clone()) {
            break (end.to_string(), first, agent);
        }
    };
    refused(
        &server.mayfly(&["agent", "rm", &end]),
        3,
        &[&end, "several", "more digits"],
    );
    for agent in [first, second] {
        printed(&server.mayfly(&["agent", "show", &agent]));
    }
}

#[test]
fn a_sandbox_that_is_not_there_is_named() {
    let server = Server::new(PROGRAM);
    let bad = ["agent", "new", "--sandbox", "docker:mayfly/no-such-image"];
    refused(
        &server.mayfly(&bad),
        7,
        &["mayfly/no-such-image", "not on this host", "pull it"],
    );
    let agent = server.agent();
    let once = [
        "agent",
        "send",
        &agent,
        "--sandbox",
        "docker:mayfly/no-such-image",
        "date",
    ];
    refused(&server.mayfly(&once), 7, &["mayfly/no-such-image"]);
    assert_eq!(server.sql("SELECT count(*) FROM messages"), "0");
    for kind in ["debian", "docker:", "nix:x", "docker:a b", "docker:../x"] {
        let output = server.mayfly(&["agent", "new", "--sandbox", kind]);
        assert_eq!(output.status.code(), Some(2), "{kind}: {output:?}");
    }
}

#[test]
fn what_changes_something_wants_four_digits() {
    let server = simulated();
    let agent = server.agent();
    printed(&server.mayfly(&["agent", "send", &agent, "echo kept > f; echo ok"]));
    let tick = server.sql("SELECT id FROM ticks");
    let (three, four) = (&agent[agent.len() - 3..], &agent[agent.len() - 4..]);
    let told = [three, "too little", "last 4 digits", "agent"];
    for verb in ["rollback", "fork", "rm", "stop"] {
        refused(&server.mayfly(&["agent", verb, three]), 4, &told);
    }
    refused(&server.mayfly(&["agent", "send", three, "date"]), 4, &told);
    let of_tick = &tick[tick.len() - 3..];
    let told = [of_tick, "too little", "tick"];
    for verb in ["rollback", "fork"] {
        refused(&server.mayfly(&["agent", verb, &agent, of_tick]), 4, &told);
    }
    server.change("UPDATE messages SET outcome = 'parked'");
    let message = server.sql("SELECT id FROM messages");
    let of_message = &message[message.len() - 3..];
    refused(
        &server.mayfly(&["parked", "retry", of_message]),
        4,
        &[of_message, "too little", "message"],
    );
    for verb in ["show", "log", "diff"] {
        printed(&server.mayfly(&["agent", verb, three]));
    }
    printed(&server.mayfly(&["tick", "show", of_tick]));
    assert_eq!(server.sql("SELECT count(*) FROM agents"), "1");
    printed(&server.mayfly(&["agent", "fork", four]));
}
