//! Markdown, as the parser of someone else reads it: the reply itself, and what is handed to
//! Slack's `markdown` block.

use pulldown_cmark::{CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};

use super::{Item, seen};

pub(crate) fn markdown(source: &str) -> Vec<Item> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source: String = source
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect();
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut reader = Reader::default();
    for event in Parser::new_ext(&source, options) {
        reader.event(event);
    }
    reader.items.push(Item::Text(reader.text));
    reader.items
}

#[derive(Default)]
struct Reader {
    items: Vec<Item>,
    text: String,
    lists: Vec<Option<u64>>,
    links: Vec<(String, String)>,
}

impl Reader {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Text(t) | Event::Code(t) | Event::Html(t) | Event::InlineHtml(t) => {
                self.text.push_str(&t);
            }
            Event::SoftBreak | Event::HardBreak => self.text.push(' '),
            Event::Rule => self.text.push_str("———"),
            Event::TaskListMarker(done) => self.text.push(if done { '☑' } else { '☐' }),
            Event::Start(Tag::List(first)) => self.lists.push(first),
            Event::End(TagEnd::List(_)) => {
                self.lists.pop();
            }
            Event::Start(Tag::Item) => match self.lists.last_mut() {
                Some(Some(number)) => {
                    self.text.push_str(&format!("{number}."));
                    *number += 1;
                }
                _ => self.text.push('•'),
            },
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented)) => {
                self.text.push(' ');
            }
            Event::Start(Tag::Link {
                link_type,
                dest_url,
                ..
            }) => {
                let scheme = if link_type == LinkType::Email {
                    "mailto:"
                } else {
                    ""
                };
                self.begin(format!("{scheme}{dest_url}"));
            }
            Event::Start(Tag::Image { dest_url, .. }) => self.begin(dest_url.into_string()),
            Event::End(TagEnd::Link | TagEnd::Image) => self.end(),
            _ => {}
        }
    }

    fn begin(&mut self, target: String) {
        self.links.push((target, std::mem::take(&mut self.text)));
    }

    fn end(&mut self) {
        let (target, before) = self.links.pop().expect("a link began");
        let label = std::mem::replace(&mut self.text, before);
        if !self.links.is_empty() {
            // An image within a link is its label.
            self.text.push_str(&label);
            return;
        }
        let same = seen(&label) == seen(&target) || format!("mailto:{}", label.trim()) == target;
        if target.is_empty() || same {
            self.text.push_str(&label);
        } else if label.trim().is_empty() {
            self.text.push_str(&target);
        } else if linkable(&target) && !label.contains("://") {
            self.items.push(Item::Text(std::mem::take(&mut self.text)));
            self.items.push(Item::Link { label, url: target });
        } else {
            self.text.push_str(&format!("{label} ({target})"));
        }
    }
}

fn linkable(target: &str) -> bool {
    let lower = target.to_lowercase();
    ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| lower.starts_with(scheme) && lower.len() > scheme.len())
        && target.chars().count() + 4 * target.matches('&').count() <= 1200
}
