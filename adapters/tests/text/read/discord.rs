//! Discord's content, as its client reads it: line by line outside of fences.

use super::Item;

pub(crate) fn discord(source: &str) -> Vec<Item> {
    let mut reader = Reader::default();
    let mut fence = false;
    for line in source.split('\n') {
        if fence {
            fence = line != "```";
            if fence {
                assert!(!line.contains("```"), "a fence within a fence in {source}");
                reader.text.push_str(line);
            }
        } else if let Some(language) = line.strip_prefix("```") {
            let known = |c: char| c.is_ascii_alphanumeric() || "_+-.#".contains(c);
            assert!(language.chars().all(known), "{language} in {source}");
            fence = true;
        } else {
            reader.line(line, source);
        }
        reader.text.push(' ');
    }
    assert!(!fence, "a fence is open in {source}");
    assert_eq!(reader.stars % 2, 0, "a mark is open in {source}");
    assert_eq!(reader.waves % 2, 0, "a mark is open in {source}");
    reader.items.push(Item::Text(reader.text));
    reader.items
}

#[derive(Default)]
struct Reader {
    items: Vec<Item>,
    text: String,
    stars: usize,
    waves: usize,
}

impl Reader {
    fn line(&mut self, line: &str, source: &str) {
        let line = line
            .strip_prefix("> ")
            .unwrap_or(line)
            .trim_start_matches(' ');
        let line = ["# ", "## ", "### "]
            .iter()
            .find_map(|mark| line.strip_prefix(mark))
            .unwrap_or(line);
        let number = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let numbered = (number > 0)
            .then(|| line[number..].strip_prefix(") "))
            .flatten();
        if numbered.is_some() {
            self.text.push_str(&format!("{}.", &line[..number]));
        }
        let line = numbered.unwrap_or(line);
        let line = match line
            .strip_prefix("- ")
            .or_else(|| line.strip_prefix("-\u{2060}"))
        {
            Some(item) => {
                self.text.push('•');
                item
            }
            None => line,
        };
        let line = ["# ", "## ", "### "]
            .iter()
            .find_map(|mark| line.strip_prefix(mark))
            .unwrap_or(line);
        self.inline(line, source);
    }

    fn inline(&mut self, line: &str, source: &str) {
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let length = match c {
                '\\' => {
                    let escaped = rest[1..].chars().next().filter(char::is_ascii_punctuation);
                    let escaped = escaped.unwrap_or_else(|| panic!("a bare backslash in {source}"));
                    self.text.push(escaped);
                    1 + escaped.len_utf8()
                }
                '`' => self.code(rest, source),
                '*' => {
                    self.stars += 1;
                    1
                }
                '~' if rest.starts_with("~~") => {
                    self.waves += 1;
                    2
                }
                '_' => panic!("a bare underscore in {source}"),
                '[' => self.link(rest),
                '<' if rest.starts_with("<http") || rest.starts_with("<mailto:") => {
                    let end = rest.find('>').expect("an address ends");
                    self.text.push_str(&rest[1..end]);
                    end + 1
                }
                c => {
                    self.text.push(c);
                    c.len_utf8()
                }
            };
            rest = &rest[length..];
        }
    }

    fn code(&mut self, rest: &str, source: &str) -> usize {
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let mut at = ticks;
        loop {
            let from = rest[at..]
                .find('`')
                .unwrap_or_else(|| panic!("code is open in {source}"));
            let run = &rest[at + from..];
            let run = run.len() - run.trim_start_matches('`').len();
            if run == ticks {
                self.text.push_str(&rest[ticks..at + from]);
                return at + from + run;
            }
            at += from + run;
        }
    }

    fn link(&mut self, rest: &str) -> usize {
        let mut escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '[' => break,
                ']' if rest[at..].starts_with("](<") => {
                    let end = rest[at..].find(">)").expect("an address ends") + at;
                    let (mut inner, stars, waves) = {
                        let mut reader = Reader::default();
                        reader.inline(&rest[1..at], rest);
                        (reader.text, reader.stars, reader.waves)
                    };
                    self.stars += stars;
                    self.waves += waves;
                    self.items.push(Item::Text(std::mem::take(&mut self.text)));
                    let url = rest[at + 3..end].to_owned();
                    self.items.push(Item::Link {
                        label: std::mem::take(&mut inner),
                        url,
                    });
                    return end + 2;
                }
                ']' => break,
                _ => {}
            }
        }
        self.text.push('[');
        1
    }
}
