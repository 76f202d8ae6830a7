//! Replies that were once shown wrong; the property test found them.

use crate::parts::check;

#[test]
fn a_quotation_in_a_list_is_no_code() {
    for source in [
        "- i\n\n\n10. - > ",
        "10. - > word",
        "10. - > - a\n    >   - b",
        "- a\n  - b\n    > q\n\n    c\n  - d",
    ] {
        check(source);
    }
}

#[test]
fn a_list_below_the_rest_of_a_text_is_a_list() {
    for piece in ["`c` ", "word ", "\u{591}`c` "] {
        for next in ["\n2) ", "\n2) next", "\n2. next\n3. more", "\n   2) inner"] {
            check(&format!("1. {}{next}", piece.repeat(1700)));
        }
    }
    check(&format!("1. \u{591}{}\n2) ", "`c` ".repeat(1700)));
    check(&format!("7) {}\n3. next", "`c` ".repeat(1700)));
}

#[test]
fn a_part_that_begins_in_a_list_within_keeps_the_numbers_of_the_list_around() {
    let inner = |n: usize| format!("   {n}. {}\n", "word ".repeat(100));
    for rounds in 7..12 {
        let lists: Vec<String> = (1..4)
            .map(|n| format!("{n}. outer\n{}", (1..rounds).map(inner).collect::<String>()))
            .collect();
        check(&lists.concat());
    }
    check(&"* a  aA A\n!0aA\nAA\na\n!<https://x.io/a>*\n   1. 1. ".repeat(31));
    let quoted = format!(
        "> 1. o\n>    1. i {}\n>    2. i\n> 2. o",
        "word ".repeat(900)
    );
    check(&quoted);
}

#[test]
fn what_stands_before_a_line_of_html_makes_no_code() {
    for source in [
        "\n<?\n\n    - ",
        "<?\n\n    - x\n\n?>",
        "<!--\n\n\t\t# x\n-->",
        "a&#10;&#10;    - b",
        "- <?\n\n      > x\n",
    ] {
        check(source);
    }
}

#[test]
fn marks_in_cells_are_marks() {
    for cell in [
        "*&#10;*",
        "**a**b",
        "x*.a*",
        "*a***b**",
        "*[x](https://x.io)*b",
        "> - 1. a",
    ] {
        check(&format!(
            "| a | b |\n|-|-|\n| c | d |\n{cell}\n| {cell} | {cell} |\n"
        ));
    }
}

#[test]
fn a_bracket_before_code_begins_no_link() {
    for source in ["[```](<br>```", "[`](<https://x.io>)`", "a [b] `](c)`"] {
        check(source);
    }
}

#[test]
fn marks_around_links_are_marks() {
    for source in [
        "[x]: https://x.io\n~[x]~*שלום",
        "a~~[x](https://x.io)~~b",
        "ש**[x](https://x.io)**ש",
        "***[x](https://x.io)***b",
    ] {
        check(source);
    }
}

#[test]
fn marks_that_end_together_before_another_are_marks() {
    for (n, times) in [(3, 3), (9, 15), (545, 15)] {
        check(&format!("{}~~", "_".repeat(n)).repeat(times));
    }
}

#[test]
fn a_second_list_below_a_deep_one_is_a_list() {
    check(&format!("\n\n10. {}- [x] \n2) ", "* ".repeat(62)));
}

#[test]
fn a_part_that_begins_with_a_quoted_item_begins_with_an_item() {
    let text = "\\*".repeat(61);
    check(&format!("> *\n2) {text}```rust\n|a|b|\n|-|-|\n|1|`x`|\n\n").repeat(12));
}

#[test]
fn a_star_is_a_letter_wherever_it_stands() {
    for source in ["\\*\u{2028}`*".repeat(3), "|>> _* |_[".to_owned()] {
        check(&source);
    }
}

#[test]
fn what_is_no_mail_address_is_none() {
    for source in ["<=a@b.io\\>", "\\<a@b.io\\>", "<`x`>", "a < b", "<**b**>"] {
        check(source);
    }
}
