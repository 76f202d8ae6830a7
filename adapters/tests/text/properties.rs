//! Any reply: within limits, whole, and all of it to be seen.

use proptest::prelude::*;

use crate::parts::check;

fn fragment() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "\n",
        "\n\n",
        " ",
        "  ",
        "    ",
        "\t",
        "word",
        "Zwei Wörter",
        "snake_case",
        "*",
        "**",
        "***",
        "_",
        "__",
        "~~",
        "~",
        "`",
        "``",
        "```",
        "```rust\n",
        "```\n",
        "\n```\n",
        "~~~\n",
        "> ",
        "\n> ",
        ">> ",
        "- ",
        "\n- ",
        "\n  - ",
        "\n    - ",
        "* ",
        "+ ",
        "1. ",
        "\n2) ",
        "\n10. ",
        "\n   1. ",
        "- [x] ",
        "- [ ] ",
        "# ",
        "\n## ",
        "\n#### ",
        "\n===\n",
        "\n---\n",
        "***\n",
        "|a|b|\n|-|-|\n|1|`x`|\n\n",
        "\n\n| long cell | [l](https://x.io) |\n|:-|-:|\n| **b** | \\| |\n",
        "|",
        "||",
        "[docs](https://x.io/a_(b)?q=1&r=2).",
        "[x](src/main.rs)",
        "[x](tg://user?id=1)",
        "![alt](https://x.io/i.png).",
        "<https://x.io/a>",
        "https://x.io/a_b*c?d=e&f",
        "[",
        "]",
        "](",
        ")",
        "(",
        "!",
        "\\",
        "\\*",
        "\\>",
        "\\`",
        "<",
        ">",
        "&",
        "&amp;",
        "&lt;",
        "&#35;",
        "&#10;",
        "<div>",
        "</div>\n",
        "<br>",
        "<!-- c -->",
        "<!channel>",
        "<@U123>",
        "<@123>",
        "<#C1>",
        "@everyone",
        "@here",
        "@alice_x",
        "a@b.io",
        "👨‍👩‍👧‍👦",
        "🇩🇪",
        "e\u{301}",
        "\u{600}<",
        "שלום",
        "\u{202e}",
        "\u{200b}",
        "\u{feff}",
        "\0",
        "\r\n",
        "\r",
        "日本語",
        "=",
        "-",
        "+",
        "#",
        ":",
        ".",
        "1.",
        "&nbsp;",
        "•",
        "◦",
        "ˋ",
        "[x]: https://x.io\n",
        "[x]",
        "\u{2028}",
    ])
    .prop_map(str::to_owned);
    let long = (
        prop::sample::select(vec![
            "a",
            "ab ",
            "x\n",
            "word word\n\n",
            "`c` ",
            "**b** ",
            "😀",
            "e\u{301}\u{302}",
            "<&>",
            "\\*",
            "_",
            "- i\n",
            "> q\n",
            "\n",
            " ",
            "🧑‍🚀",
            "\u{301}",
            "[",
            "`",
            "@everyone ",
            "| c ",
            "* ",
            ">",
            "1. ",
        ]),
        1usize..1800,
    )
        .prop_map(|(piece, times)| piece.repeat(times));
    prop_oneof![40 => fixed, 1 => long, 2 => "\\PC{0,12}", 2 => "[ -~\n]{0,30}"]
}

/// So many, or more by `PROPTEST_CASES` (256 is as here).
fn cases(here: u32) -> u32 {
    ProptestConfig::default().cases.saturating_mul(here) / 256
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(150), max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_part_is_whole_and_the_parts_show_what_the_reply_says(
        fragments in prop::collection::vec(fragment(), 0..40)
    ) {
        check(&fragments.concat());
    }

}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(40),
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn long_replies_too(
        fragments in prop::collection::vec(fragment(), 1..12), times in 1usize..40
    ) {
        check(&fragments.concat().repeat(times));
    }
}

/// A star between blanks is a letter, but not where a part begins.
#[test]
fn a_part_that_begins_with_a_star_is_no_list() {
    for before in 0..4 {
        check(&format!("|{}{}", "word ".repeat(before), "* ".repeat(2500)));
    }
}
