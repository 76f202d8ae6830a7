use mayfly_domain::{AgentId, MessageId, MessageOutcome, TickId};
use mayfly_orchestrator::{
    agent::transcript::{Event, Line},
    tick::outcome::{Changes, TickOutcome},
    view::{
        AgentView, ChangeView, DiffView, MessageView, StopView, TickDetail, TickView, UsageView,
    },
};

use super::*;
use crate::screen::Screen;

const PLAIN: Screen = Screen {
    json: false,
    colour: false,
};

fn an_agent() -> AgentView {
    let id = AgentId::new();
    AgentView {
        id,
        short: id.short(),
        profile: "shell".to_owned(),
        sandbox: "docker:mayfly/base".to_owned(),
        created_at: 0,
        head: None,
        head_tick: None,
        running: None,
        waiting: 2,
        parked: 1,
        ticks: 3,
        layers: 0,
        forked_from: None,
        disk: None,
        undelivered: Vec::new(),
    }
}

fn a_tick() -> TickView {
    TickView {
        id: TickId::new(),
        agent: AgentId::new(),
        message: MessageId::new(),
        retry_of: None,
        phase: "run".to_owned(),
        outcome: Some(TickOutcome::Failed),
        changes: Some(Changes::Kept),
        notice: Some("exit 3, changes kept".to_owned()),
        exit_code: Some(3),
        started_at: 1_000,
        ended_at: Some(2_500),
        before: None,
        after: None,
        image: None,
        notes: Vec::new(),
        usage: UsageView::default(),
        title: "run \x1b[31mit".to_owned(),
        in_head: true,
        state: None,
    }
}

#[test]
fn a_list_of_agents_has_one_line_each() {
    let text = agents(&[an_agent()], PLAIN);
    assert_eq!(text.lines().count(), 2);
    assert!(text.contains("idle, 2 waiting, 1 parked"), "{text}");
    assert_eq!(agents(&[], PLAIN), "");
    assert!(agent(&an_agent(), PLAIN).contains("head         the image's own files"));
}

#[test]
fn a_tick_says_how_it_ended_and_cannot_steer_the_terminal() {
    let tick = a_tick();
    let text = ticks(std::slice::from_ref(&tick), PLAIN);
    assert!(text.contains("1.5 s"), "{text}");
    assert!(text.contains("failed, changes kept"), "{text}");
    let line = |n, event| Line { n, at: 0, event };
    let out = "a\n\x1b]0;title\x07b\n".to_owned();
    let detail = TickDetail {
        tick,
        transcript: vec![
            line(1, Event::Stdout { text: out }),
            line(
                2,
                Event::Exit {
                    code: Some(3),
                    signal: None,
                },
            ),
        ],
    };
    let text = super::tick(&detail, PLAIN);
    assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text}");
    assert!(text.contains("    1 stdout   a\n               "), "{text}");
    assert!(text.contains("    2 exit     code 3"), "{text}");
}

#[test]
fn a_diff_counts_lines_and_bytes() {
    let change = ChangeView {
        path: "/work/a".to_owned(),
        kind: "modified".to_owned(),
        added: Some(2),
        removed: Some(1),
        bytes_before: Some(10),
        bytes_after: Some(2048),
        ..ChangeView::default()
    };
    let moved = ChangeView {
        path: "/work/\u{fffd}".to_owned(),
        path_encoded: Some("/work/%FF".to_owned()),
        kind: "renamed".to_owned(),
        from: Some("/work/old\n".to_owned()),
        below: 3,
        ..ChangeView::default()
    };
    let view = DiffView {
        changes: vec![change, moved],
        more: 2,
        notes: vec!["a note".to_owned()],
    };
    assert_eq!(names(&view), "/work/a\n\"/work/\\377\"\n");
    assert_eq!(
        diff(&view, PLAIN),
        "modified /work/a  +2 -1, 10 B -> 2.0 KiB\n\
         renamed  \"/work/old\\n\" -> \"/work/\\377\" (with all 3 below)\n\
         2 entries, +2 -1 lines\n\
         2 more entries differ and are not listed\n\
         a note\n"
    );
    assert_eq!(diff(&DiffView::default(), PLAIN), "nothing changed\n");
}

#[test]
fn a_waiting_message_tells_its_place() {
    let mut message = MessageView {
        id: MessageId::new(),
        agent: AgentId::new(),
        seq: 1,
        author: "a".to_owned(),
        text: "t".to_owned(),
        files: Vec::new(),
        created_at: 0,
        outcome: None,
        reason: None,
        merged_into: None,
        attempts: 0,
        ahead: 2,
        tick: None,
        progress: None,
        reply: None,
        undelivered: None,
    };
    assert_eq!(state(&message), "waiting, 2 messages before it");
    message.progress = Some("run".to_owned());
    assert_eq!(state(&message), "run");
    message.outcome = Some(MessageOutcome::Parked);
    assert_eq!(state(&message), "parked");
    assert!(parked(&[message], PLAIN).contains("MESSAGE"));
}

#[test]
fn a_stop_counts_what_it_took_back() {
    let view = StopView {
        stopping: None,
        withdrawn: vec![MessageId::new(), MessageId::new()],
        waiting: 0,
    };
    assert_eq!(stop(&view), "nothing runs, 2 messages withdrawn");
    let view = StopView {
        withdrawn: Vec::new(),
        waiting: 2,
        ..view
    };
    assert_eq!(
        stop(&view),
        "nothing runs, 2 messages wait and will run: stop --all withdraws them"
    );
}

#[test]
fn sizes_and_spans_are_readable() {
    assert_eq!(bytes(0), "0 B");
    assert_eq!(bytes(3 << 30), "3.0 GiB");
    assert_eq!(span(42), "42 ms");
    assert_eq!(span(61_000), "1 min 1 s");
}
