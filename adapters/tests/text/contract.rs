//! Fifteen strings and what they become, on all three.

use mayfly_adapters::text::{Rendered, discord, slack, telegram};

const WJ: &str = "\u{2060}";

fn one<P>(rendered: Rendered<P>) -> P {
    match rendered {
        Rendered::Parts(parts) if parts.len() == 1 => parts.into_iter().next().expect("one"),
        Rendered::Parts(parts) => panic!("{} parts", parts.len()),
        Rendered::Long { .. } => panic!("a file"),
    }
}

#[track_caller]
fn becomes(source: &str, slack: &str, discord: &str, telegram: &str) {
    assert_eq!(one(slack::render(source)).text, slack, "Slack");
    assert_eq!(one(discord::render(source)).content, discord, "Discord");
    assert_eq!(one(telegram::render(source)).html, telegram, "Telegram");
}

#[test]
fn string_01_entities() {
    let source = "a < b && c > d";
    let escaped = "a &lt; b &amp;&amp; c &gt; d";
    becomes(source, escaped, source, escaped);
}

#[test]
fn string_02_styles() {
    becomes(
        "**bold** *it* ~~del~~ __b2__",
        "*bold* _it_ ~del~ *b2*",
        "**bold** *it* ~~del~~ **b2**",
        "<b>bold</b> <i>it</i> <s>del</s> <b>b2</b>",
    );
}

#[test]
fn string_03_characters_that_look_like_marks() {
    let source = "snake_case_name 5 * 3 * 2";
    becomes(source, source, r"snake\_case\_name 5 \* 3 \* 2", source);
}

#[test]
fn string_04_a_link() {
    becomes(
        "[docs](https://x.io/a_(b)?q=1&r=2)",
        "<https://x.io/a_(b)?q=1&amp;r=2|docs>",
        "[docs](<https://x.io/a_(b)?q=1&r=2>)",
        "<a href=\"https://x.io/a_(b)?q=1&amp;r=2\">docs</a>",
    );
}

#[test]
fn string_05_a_heading() {
    becomes(
        "#### Title\ntext",
        "*Title*\ntext",
        "**Title**\ntext",
        "<b>Title</b>\ntext",
    );
    for level in ["#", "##", "###"] {
        let source = format!("{level} Title\ntext");
        becomes(&source, "*Title*\ntext", &source, "<b>Title</b>\ntext");
    }
}

#[test]
fn string_06_a_fence() {
    let source = "```rust\nlet a = &b < c;\n```";
    becomes(
        source,
        "```\nlet a = &amp;b &lt; c;\n```",
        source,
        "<pre><code class=\"language-rust\">let a = &amp;b &lt; c;</code></pre>",
    );
}

#[test]
fn string_07_a_backtick_in_code() {
    becomes("``a`b``", "`a\u{2cb}b`", "``a`b``", "<code>a`b</code>");
}

#[test]
fn string_08_a_table() {
    let source = "|a|b|\n|-|-|\n|1|2|";
    let fenced = "```\na  b\n1  2\n```";
    becomes(source, fenced, fenced, "<pre>a  b\n1  2</pre>");
    let native = one(slack::render(source)).markdown;
    assert_eq!(native.trim(), "| a | b |\n| --- | --- |\n| 1 | 2 |");
}

#[test]
fn string_09_lists() {
    let source = "- a\n  - b\n1. c";
    becomes(source, "• a\n    ◦ b\n1. c", source, "• a\n   ◦ b\n1. c");
}

#[test]
fn string_10_mentions() {
    let source = "@everyone <@U123> <!channel> @alice";
    becomes(
        source,
        "@everyone &lt;@U123&gt; &lt;!channel&gt; @alice",
        source,
        &format!("@{WJ}everyone &lt;@U123&gt; &lt;!channel&gt; @{WJ}alice"),
    );
}

#[test]
fn string_11_a_quotation() {
    let source = "> quote\n\n\\> literal";
    becomes(
        source,
        &format!("> quote\n\n{WJ}&gt; literal"),
        source,
        "<blockquote>quote</blockquote>\n&gt; literal",
    );
}

#[test]
fn string_12_bars() {
    let source = "a || b || c";
    becomes(source, source, r"a \|\| b \|\| c", source);
}

#[test]
fn string_13_styles_within_styles() {
    let source = "***both*** ~~a **b** c~~";
    becomes(
        source,
        "*_both_* ~a *b* c~",
        source,
        "<b><i>both</i></b> <s>a <b>b</b> c</s>",
    );
}

fn lengths(parts: Vec<String>) -> Vec<usize> {
    parts.iter().map(|part| part.chars().count()).collect()
}

fn all<P>(rendered: Rendered<P>, text: impl Fn(P) -> String) -> Vec<String> {
    match rendered {
        Rendered::Parts(parts) => parts.into_iter().map(text).collect(),
        Rendered::Long { .. } => panic!("a file"),
    }
}

#[test]
fn string_14_many_emoji() {
    let source = "\u{1f600}".repeat(4097);
    let slack = all(slack::render(&source), |part| part.text);
    assert_eq!(lengths(slack), [4000, 97]);
    let discord = all(discord::render(&source), |part| part.content);
    assert_eq!(lengths(discord), [2000, 2000, 97]);
    let telegram = all(telegram::render(&source), |part| part.html);
    assert_eq!(lengths(telegram), [4000, 97]);
}

#[test]
fn string_15_a_long_fence() {
    let line = format!("{}\n", "a".repeat(50));
    let source = format!("```py\n{}```", line.repeat(50));
    assert_eq!(all(slack::render(&source), |part| part.text).len(), 1);
    let telegram = all(telegram::render(&source), |part| part.html);
    assert_eq!(telegram.len(), 1);
    assert_eq!(telegram[0].matches("<pre>").count(), 1);
    let discord = all(discord::render(&source), |part| part.content);
    assert_eq!(discord.len(), 2);
    for part in &discord {
        assert!(
            part.starts_with("```py\n") && part.ends_with("\n```"),
            "{part}"
        );
        assert_eq!(part.matches("```").count(), 2);
    }
    let letters: usize = discord.iter().map(|part| part.matches('a').count()).sum();
    assert_eq!(letters, 2500);
}
