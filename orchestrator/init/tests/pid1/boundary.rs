//! What stands between the agent and init.

use crate::harness::Sandbox;

#[test]
fn a_program_has_no_privilege_and_no_handle() {
    let mut sandbox = Sandbox::started();
    let outcome = sandbox.script(
        "grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapAmb|NoNewPrivs|SigBlk|SigIgn)' /proc/self/status
         ls /proc/self/fd | wc -w; cat /proc/self/oom_score_adj",
    );
    let words: Vec<String> = outcome
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "Uid: 1000 1000 1000 1000",
        "Gid: 1000 1000 1000 1000",
        "Groups:",
        "SigBlk: 0000000000000000",
        "SigIgn: 0000000000000000",
        "CapInh: 0000000000000000",
        "CapPrm: 0000000000000000",
        "CapEff: 0000000000000000",
        "CapAmb: 0000000000000000",
        "NoNewPrivs: 1",
        // Its three streams and the folder that `ls` reads.
        "4",
        "500",
    ];
    for line in expected {
        assert!(
            words.iter().any(|found| found == line),
            "no {line:?} in {words:#?}"
        );
    }
    assert_eq!(words.len(), expected.len(), "{words:#?}");
}

#[test]
fn init_is_out_of_reach() {
    let mut sandbox = Sandbox::started();
    let outcome = sandbox.script(
        "kill -9 1; kill -STOP 1; renice 19 -p 1; ls /proc/1/fd; cat /proc/1/environ; cat /proc/1/maps
         dd if=/dev/zero of=/proc/1/mem bs=1 count=1; cat /proc/1/exe | head -c 1
         echo 1000 >/proc/1/oom_score_adj; echo x >/mayfly/bin/mayfly-init",
    );
    assert_eq!(outcome.text(), "", "{outcome:?}");
    assert!(
        String::from_utf8_lossy(&outcome.stderr)
            .matches("ermission denied")
            .count()
            >= 6,
        "{outcome:?}"
    );
    assert_eq!(sandbox.script("echo on").text(), "on\n");
}
