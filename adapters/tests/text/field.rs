//! Reported failures that are about text.

use mayfly_adapters::text::{Rendered, discord, slack, telegram};

use crate::{
    parts::{check, on_discord, on_slack, on_telegram},
    read,
};

fn parts<P>(rendered: Rendered<P>) -> Vec<P> {
    match rendered {
        Rendered::Parts(parts) => parts,
        Rendered::Long { .. } => panic!("a file"),
    }
}

#[test]
fn fm_01_a_fence_across_the_limit_is_closed_and_opened_again_within_it() {
    for before in (1965..1999).step_by(2) {
        let source = format!(
            "{}\n```rust\nlet a = 1;\nlet b = 2;\n```\nend",
            "x".repeat(before)
        );
        let parts = parts(discord::render(&source));
        assert_eq!(parts.len(), 2);
        check(&source);
    }
}

#[test]
fn fm_01_every_part_of_a_long_code_block_is_a_block_of_its_language() {
    let lines: Vec<String> = (0..300).map(|n| format!("    x{n:03} = {n}")).collect();
    let source = format!("```py\n{}\n```", lines[..280].join("\n"));
    let parts = parts(discord::render(&source));
    assert_eq!(parts.len(), 3);
    let mut code = Vec::new();
    for part in &parts {
        let inner = part.content.strip_prefix("```py\n").expect("opens");
        let inner = inner.strip_suffix("\n```").expect("closes");
        code.extend(inner.split('\n').map(str::to_owned));
    }
    // Also the indentation of the lines at which it was cut.
    assert_eq!(code, lines[..280]);
    check(&format!("```py\n{}\n```", lines.join("\n")));
}

#[test]
fn fm_01_exactly_the_limit_is_one_message_and_one_more_is_two() {
    for (length, count) in [(2000, 1), (2001, 2)] {
        let source = "a".repeat(length);
        assert_eq!(parts(discord::render(&source)).len(), count);
    }
    for (length, count) in [(4000, 1), (4001, 2)] {
        let source = "a".repeat(length);
        assert_eq!(parts(slack::render(&source)).len(), count);
        assert_eq!(parts(telegram::render(&source)).len(), count);
    }
}

#[test]
fn fm_03_slack_limits_hold_for_the_whole_message() {
    for length in [3001, 12_000, 12_001] {
        check(&"word ".repeat(length / 5));
        check(&"a".repeat(length));
    }
    let row = format!("| {} | {} |\n", "c".repeat(38), "d".repeat(38));
    let table = format!("| a | b |\n| - | - |\n{}", row.repeat(78));
    let source = format!("{table}\nand\n\n{table}");
    let (text, _) = on_slack(&source);
    assert!(
        text.cut,
        "two tables of 6,000 characters fit into no three messages"
    );
    check(&source);
    // Smaller ones are tables of Slack, each whole in one message.
    let small = format!("| a | b |\n| - | - |\n{}", row.repeat(30));
    let parts = parts(slack::render(&format!("{small}\nand\n\n{small}")));
    assert_eq!(parts.len(), 2);
    for part in &parts {
        assert_eq!(part.markdown.matches("| --- |").count(), 1);
    }
}

#[test]
fn fm_04_marks_across_the_limit_are_whole_on_both_sides() {
    for before in (3960..4000).step_by(3) {
        check(&format!("{} **bold words here** end", "x".repeat(before)));
        check(&format!(
            "{} [a label](https://x.io/?a=1&b=2) end",
            "x".repeat(before)
        ));
    }
    let source = "use `--model`, not `--runtime`, for FOO_BAR_BAZ*";
    check(source);
    let parts = parts(telegram::render(source));
    assert_eq!(
        parts[0].html,
        "use <code>--model</code>, not <code>--runtime</code>, for FOO_BAR_BAZ*"
    );
    assert_eq!(
        parts[0].plain,
        "use --model, not --runtime, for FOO_BAR_BAZ*"
    );
}

#[test]
fn fm_06_nobody_is_pinged_and_everything_is_shown() {
    let mentions = "@everyone @here <@&123> <@123> <@!9> <#7> <!channel> <!here> <!subteam^S1> <@U123ABC> @alice_x";
    for source in [
        mentions.to_owned(),
        format!("`{mentions}`"),
        format!("```\n{mentions}\n```"),
        format!("> {mentions}"),
        format!("# {mentions}"),
        format!("[{mentions}](https://x.io)"),
        format!("| {mentions} |\n|-|\n| {mentions} |"),
        format!("![{mentions}](tg://user?id=1)"),
    ] {
        // The readers refuse what Slack would expand.
        check(&source);
    }
    let discord = parts(discord::render(mentions));
    for pill in ["<@&123>", "<@123>", "<@!9>", "<#7>"] {
        assert!(
            discord[0].content.contains(&format!("\\{pill}")),
            "{pill} is shown as a name"
        );
    }
    let telegram = parts(telegram::render(mentions));
    for name in ["@everyone", "@here", "@U123ABC", "@alice_x"] {
        assert!(!telegram[0].html.contains(name), "{name} in HTML");
        assert!(!telegram[0].plain.contains(name), "{name} in plain text");
    }
    let telegram = parts(telegram::render("[you](tg://user?id=1)"));
    assert_eq!(telegram[0].html, "you (tg://user?id=1)");
}

#[test]
fn fm_08_an_answer_without_anything_to_see_is_no_message() {
    for empty in ["", " \n\t\n", "\u{200b}\u{feff}", "\0"] {
        assert_eq!(
            slack::render(empty),
            Rendered::Parts(Vec::new()),
            "{empty:?}"
        );
        assert_eq!(
            discord::render(empty),
            Rendered::Parts(Vec::new()),
            "{empty:?}"
        );
        assert_eq!(
            telegram::render(empty),
            Rendered::Parts(Vec::new()),
            "{empty:?}"
        );
    }
    // Marks alone are shown as they are.
    assert_eq!(
        parts(telegram::render("[x]: https://x.io"))[0].plain,
        "[x]: https://x.io"
    );
}

#[test]
fn a_reply_over_three_messages_is_a_file_with_its_beginning() {
    let source = format!("# Title\n\n{}", "one two three\n\n".repeat(2000));
    let Rendered::Long { summary, file } = discord::render(&source) else {
        panic!("no file");
    };
    assert_eq!(
        (file.name.as_str(), file.content.as_str()),
        ("reply.md", source.as_str())
    );
    assert!(summary.content.starts_with("# Title\n\none two three\n\n"));
    assert!(
        summary
            .content
            .ends_with("\n\n(The whole reply is in the attached file.)")
    );
    let seen = on_discord(&source);
    assert!(read::text(&seen.parts[0]).starts_with("Titleonetwothree"));
    assert!(on_telegram(&source).0.cut);
}

#[test]
fn what_a_long_reply_costs_does_not_grow_faster_than_it() {
    for piece in [
        "[",
        "> ",
        "- ",
        "`",
        "*a ",
        "|a|\n|-|\n",
        "<div>\n",
        "\u{301}",
        "  - x\n",
    ] {
        let source = piece.repeat((1 << 16) / piece.len());
        let began = std::time::Instant::now();
        let _ = (
            slack::render(&source),
            discord::render(&source),
            telegram::render(&source),
        );
        let took = began.elapsed();
        assert!(took.as_secs() < 20, "{piece:?} took {took:?}");
    }
}
