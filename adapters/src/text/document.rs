//! Markdown as a flat list of blocks.
//!
//! Nesting is kept as data of a block (list depth, quote), so that no reader recurses over what an
//! agent wrote. Code and tables stand outside of lists and quotes: inside them no platform shows
//! them well.

use std::ops::Range;

use pulldown_cmark::{
    CodeBlockKind, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, TextMergeWithOffset,
};

use super::url;

/// The items of deeper lists are lines of text.
const MAX_DEPTH: usize = 8;

/// What stands between a block and the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    None,
    Line,
    Blank,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Block {
    pub(super) gap: Gap,
    /// Which quotation it belongs to.
    pub(super) quote: Option<usize>,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Text {
        lead: Lead,
        /// 1 to 6.
        heading: Option<u8>,
        inlines: Vec<Inline>,
    },
    Code {
        /// Letters, digits and `_+-.#` only; empty if none was given.
        language: String,
        /// Without the last newline.
        text: String,
    },
    Table(Vec<Vec<Vec<Inline>>>),
}

/// Where in a list a text stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Lead {
    /// For each list around it, how wide its marker is in Markdown (`- ` is 2).
    pub(super) indents: Vec<usize>,
    /// Set for the first text of an item.
    pub(super) marker: Option<Marker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    Bullet,
    Number {
        number: u64,
        /// Written `1)`: the list before it, with which it would be one, is written `1.`.
        bracket: bool,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Inline {
    Text(String),
    Code(String),
    /// An address that is its own label.
    Url(String),
    Break,
    Open(Style),
    Close(Style),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Style {
    Bold,
    Italic,
    Strike,
    Link(String),
}

/// Reads Markdown. Any text is Markdown.
pub(super) fn read(source: &str) -> Vec<Block> {
    let source = clean(source);
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let parser = Parser::new_ext(&source, options).into_offset_iter();
    let mut reader = Reader::new(&source);
    for (event, range) in TextMergeWithOffset::new(parser) {
        reader.event(event, range);
    }
    reader.flush();
    reader.blocks
}

/// The source itself as one text.
pub(super) fn verbatim(source: &str) -> Vec<Block> {
    let source = clean(source);
    let mut inlines = Vec::new();
    push_text(&mut inlines, source.trim());
    vec![Block {
        gap: Gap::None,
        quote: None,
        kind: Kind::Text {
            lead: Lead::default(),
            heading: None,
            inlines,
        },
    }]
}

/// What a reader sees of it, without styles.
pub(super) fn plain(inlines: &[Inline]) -> String {
    let mut text = String::new();
    for inline in inlines {
        match inline {
            Inline::Text(t) | Inline::Code(t) | Inline::Url(t) => text.push_str(t),
            Inline::Break => text.push(' '),
            Inline::Open(_) | Inline::Close(_) => {}
        }
    }
    text
}

/// Without control characters; every line ends with `\n`.
fn clean(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| !dropped(*c)).collect()
}

fn dropped(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

/// Text may hold line ends, as entities.
fn push_text(inlines: &mut Vec<Inline>, text: &str) {
    for (n, line) in text.split('\n').enumerate() {
        if n > 0 {
            inlines.push(Inline::Break);
        }
        let line: String = line.chars().filter(|c| !dropped(*c)).collect();
        if !line.is_empty() {
            inlines.push(Inline::Text(line));
        }
    }
}

struct List {
    next: Option<u64>,
    bracket: bool,
    width: usize,
}

/// The block that is being read, and its place in the source.
struct Current {
    start: usize,
    end: usize,
    heading: Option<u8>,
}

/// A span that was begun, and whether anything was written for it.
enum Begun {
    Style(Style, bool),
    Link {
        target: String,
        from: usize,
        shown: bool,
    },
}

struct Reader<'a> {
    source: &'a str,
    blocks: Vec<Block>,
    /// Where the last block's content ended in the source.
    end: usize,
    lists: Vec<List>,
    /// An item's marker that no text has taken yet.
    marker: Option<(Marker, usize)>,
    /// How many blocks there were when the last numbered list ended, and whether it was written `1)`.
    ended: Option<(usize, bool)>,
    quote_depth: usize,
    quotes: usize,
    current: Option<Current>,
    inlines: Vec<Inline>,
    begun: Vec<Begun>,
    code: Option<(String, String)>,
    table: Option<Vec<Vec<Vec<Inline>>>>,
}

impl Marker {
    /// Columns in Markdown.
    pub(super) fn width(self) -> usize {
        match self {
            Marker::Bullet => 2,
            Marker::Number { number, .. } => number.to_string().len() + 2,
        }
    }

    /// As it looks, where a language has no lists.
    pub(super) fn drawn(self, depth: usize) -> String {
        match self {
            Marker::Bullet if depth == 0 => "• ".to_owned(),
            Marker::Bullet => "◦ ".to_owned(),
            Marker::Number { number, .. } => format!("{number}. "),
        }
    }
}

impl<'a> Reader<'a> {
    fn new(source: &'a str) -> Self {
        Reader {
            source,
            blocks: Vec::new(),
            end: 0,
            lists: Vec::new(),
            marker: None,
            ended: None,
            quote_depth: 0,
            quotes: 0,
            current: None,
            inlines: Vec::new(),
            begun: Vec::new(),
            code: None,
            table: None,
        }
    }

    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag, range),
            Event::End(tag) => self.finish(tag),
            Event::Text(text) if self.code.is_some() => {
                if let Some((_, code)) = &mut self.code {
                    code.push_str(&text);
                }
            }
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => {
                self.inline(&range);
                push_text(&mut self.inlines, &text);
            }
            Event::Code(code) => {
                self.inline(&range);
                let code: String = code.chars().filter(|c| !c.is_control()).collect();
                self.inlines.push(Inline::Code(code));
            }
            Event::SoftBreak | Event::HardBreak => {
                self.inline(&range);
                self.inlines.push(Inline::Break);
            }
            Event::TaskListMarker(done) => {
                self.inline(&range);
                let mark = if done { "☑ " } else { "☐ " };
                self.inlines.push(Inline::Text(mark.to_owned()));
            }
            Event::Rule => {
                self.flush();
                self.inline(&range);
                self.inlines.push(Inline::Text("———".to_owned()));
                self.flush();
            }
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.inline(&range);
                push_text(&mut self.inlines, &text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Emphasis => self.begin(Style::Italic, &range),
            Tag::Strong => self.begin(Style::Bold, &range),
            Tag::Strikethrough => self.begin(Style::Strike, &range),
            Tag::Link {
                link_type,
                dest_url,
                ..
            } => {
                let target = match link_type {
                    LinkType::Email => format!("mailto:{dest_url}"),
                    _ => dest_url.into_string(),
                };
                self.link(target, &range);
            }
            Tag::Image { dest_url, .. } => self.link(dest_url.into_string(), &range),
            Tag::TableHead | Tag::TableRow => {
                if let Some(rows) = &mut self.table {
                    rows.push(Vec::new());
                }
            }
            Tag::TableCell => {}
            Tag::Paragraph => {
                self.flush();
                self.current = Some(Current {
                    start: range.start,
                    end: range.start,
                    heading: None,
                });
            }
            Tag::Heading { level, .. } => {
                self.flush();
                let heading = Some(level_of(level));
                self.current = Some(Current {
                    start: range.start,
                    end: range.start,
                    heading,
                });
            }
            Tag::BlockQuote(_) => {
                self.flush();
                self.quote_depth += 1;
                if self.quote_depth == 1 {
                    self.quotes += 1;
                }
            }
            Tag::List(first) => {
                self.flush();
                self.lone_marker();
                let bracket = first.is_some()
                    && self
                        .ended
                        .is_some_and(|(blocks, bracket)| blocks == self.blocks.len() && !bracket);
                self.lists.push(List {
                    next: first,
                    bracket,
                    width: 2,
                });
            }
            Tag::Item => {
                self.flush();
                self.lone_marker();
                self.item(range.start);
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.lone_marker();
                self.code = Some((language(&kind), String::new()));
                self.open(&range);
            }
            Tag::Table(_) => {
                self.flush();
                self.lone_marker();
                self.table = Some(Vec::new());
                self.open(&range);
            }
            _ => self.flush(),
        }
    }

    fn finish(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.end_style(),
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inlines);
                if let Some(row) = self.table.as_mut().and_then(|rows| rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {}
            TagEnd::Table => self.end_table(),
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::Item => {
                self.flush();
                self.lone_marker();
                if let Some(next) = self.lists.last_mut().and_then(|list| list.next.as_mut()) {
                    *next += 1;
                }
            }
            TagEnd::List(_) => {
                self.flush();
                if let Some(list) = self.lists.pop()
                    && list.next.is_some()
                {
                    self.ended = Some((self.blocks.len(), list.bracket));
                }
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.lone_marker();
                self.quote_depth = self.quote_depth.saturating_sub(1);
            }
            _ => self.flush(),
        }
    }

    fn item(&mut self, at: usize) {
        if let Some(list) = self.lists.last_mut() {
            let marker = match list.next {
                None => Marker::Bullet,
                Some(number) => Marker::Number {
                    number,
                    bracket: list.bracket,
                },
            };
            list.width = marker.width();
            self.marker = Some((marker, at));
        }
    }

    /// An item whose first child is no text still shows its marker.
    fn lone_marker(&mut self) {
        if let Some((_, at)) = self.marker {
            self.open(&(at..at));
            self.flush();
        }
    }

    /// Something belongs to the block at hand; a tight list item has none yet.
    fn inline(&mut self, range: &Range<usize>) {
        let content = self.source.get(range.clone()).unwrap_or_default();
        let end = range.start + content.trim_end().len();
        if self.current.is_none() {
            self.open(&(range.start..end));
        }
        if let Some(current) = &mut self.current {
            current.end = current.end.max(end);
        }
    }

    fn open(&mut self, range: &Range<usize>) {
        let content = self.source.get(range.clone()).unwrap_or_default();
        self.current = Some(Current {
            start: range.start,
            end: range.start + content.trim_end().len(),
            heading: None,
        });
    }

    fn begin(&mut self, style: Style, range: &Range<usize>) {
        self.inline(range);
        let heading = self.current.as_ref().is_some_and(|c| c.heading.is_some());
        let again = self
            .begun
            .iter()
            .any(|begun| matches!(begun, Begun::Style(other, true) if *other == style));
        let shown = !(again || heading && style == Style::Bold);
        if shown {
            self.inlines.push(Inline::Open(style.clone()));
        }
        self.begun.push(Begun::Style(style, shown));
    }

    fn end_style(&mut self) {
        if let Some(Begun::Style(style, true)) = self.begun.pop() {
            self.inlines.push(Inline::Close(style));
        }
    }

    fn link(&mut self, target: String, range: &Range<usize>) {
        self.inline(range);
        let shown = !self
            .begun
            .iter()
            .any(|begun| matches!(begun, Begun::Link { .. }));
        self.begun.push(Begun::Link {
            target,
            from: self.inlines.len(),
            shown,
        });
    }

    fn end_link(&mut self) {
        let Some(Begun::Link {
            target,
            from,
            shown: true,
        }) = self.begun.pop()
        else {
            return;
        };
        let from = from.min(self.inlines.len());
        let label = plain(&self.inlines[from..]);
        let label = label.trim();
        match url::linkable(&target) {
            Some(url) if label.is_empty() || (label == target && url == target) => {
                self.inlines.truncate(from);
                self.inlines.push(Inline::Url(url));
            }
            // A label that names another address than the target's is a trap: show both.
            Some(url) if !label.contains("://") && mail(&target) != Some(label) => {
                let style = Style::Link(url);
                self.inlines.insert(from, Inline::Open(style.clone()));
                self.inlines.push(Inline::Close(style));
            }
            _ if target.is_empty() || label == target || mail(&target) == Some(label) => {}
            _ if label.is_empty() => push_text(&mut self.inlines, &target),
            _ => push_text(&mut self.inlines, &format!(" ({target})")),
        }
    }

    fn end_table(&mut self) {
        let rows = self.table.take().unwrap_or_default();
        self.inlines.clear();
        self.push(Kind::Table(rows), None);
    }

    fn end_code(&mut self) {
        let Some((language, text)) = self.code.take() else {
            return;
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let text: String = text.chars().filter(|c| !dropped(*c)).collect();
        if text.trim().is_empty() {
            self.current = None;
        } else {
            self.push(Kind::Code { language, text }, None);
        }
    }

    /// Ends the text at hand.
    fn flush(&mut self) {
        self.begun.clear();
        let mut inlines = std::mem::take(&mut self.inlines);
        while inlines.last() == Some(&Inline::Break) {
            inlines.pop();
        }
        let breaks = inlines.iter().take_while(|i| **i == Inline::Break);
        inlines.drain(..breaks.count());
        unindent(&mut inlines);
        let marker = self.marker.take();
        if self.current.is_none() || (inlines.is_empty() && marker.is_none()) {
            self.marker = marker;
            self.current = None;
            return;
        }
        bold_outside(&mut inlines);
        let marker = marker.map(|(marker, _)| marker);
        let marker = if self.lists.len() > MAX_DEPTH
            && let Some(marker) = marker
        {
            inlines.insert(0, Inline::Text(marker.drawn(0)));
            None
        } else {
            marker
        };
        let around = self.lists.len() - usize::from(marker.is_some() && !self.lists.is_empty());
        let lead = Lead {
            indents: self.lists[..around]
                .iter()
                .take(MAX_DEPTH)
                .map(|list| list.width)
                .collect(),
            marker,
        };
        let heading = self.current.as_ref().and_then(|current| current.heading);
        let quote = (self.quote_depth > 0).then_some(self.quotes);
        self.push(
            Kind::Text {
                lead,
                heading,
                inlines,
            },
            quote,
        );
    }

    fn push(&mut self, kind: Kind, quote: Option<usize>) {
        let Some(current) = self.current.take() else {
            return;
        };
        let between = self.source.get(self.end..current.start).unwrap_or_default();
        let gap = match between.matches('\n').count() {
            _ if self.blocks.is_empty() => Gap::None,
            0 | 1 if !needs_blank(&self.blocks, &kind) => Gap::Line,
            _ => Gap::Blank,
        };
        self.end = self.end.max(current.end);
        self.blocks.push(Block { gap, quote, kind });
    }
}

/// Right below a list, a text would be read as part of its last item; right below a text, a list
/// that does not begin with 1 as part of the text.
fn needs_blank(blocks: &[Block], next: &Kind) -> bool {
    let Some(Kind::Text { lead: last, .. }) = blocks.last().map(|block| &block.kind) else {
        return false;
    };
    let Kind::Text { lead, heading, .. } = next else {
        return false;
    };
    let within = |lead: &Lead| lead.marker.is_some() || !lead.indents.is_empty();
    let late = matches!(lead.marker, Some(Marker::Number { number, .. }) if number != 1);
    // A second list right below one, deep within which a text is, would be part of that text.
    let bracket = |lead: &Lead| matches!(lead.marker, Some(Marker::Number { bracket: true, .. }));
    let second = bracket(lead) && !bracket(last);
    (within(last) && !within(lead) && heading.is_none()) || (!within(last) && late) || second
}

/// HTML and entities keep what stands before a line; four spaces there would make it code.
fn unindent(inlines: &mut [Inline]) {
    let mut line_start = true;
    for inline in inlines {
        match inline {
            Inline::Break => line_start = true,
            Inline::Text(text) if line_start => {
                *text = text.trim_start_matches([' ', '\t']).to_owned();
                line_start = text.is_empty();
            }
            Inline::Open(_) | Inline::Close(_) => {}
            _ => line_start = false,
        }
    }
}

fn mail(target: &str) -> Option<&str> {
    target.strip_prefix("mailto:")
}

/// `***x***` is bold around italic: Slack and Telegram show that best.
fn bold_outside(inlines: &mut [Inline]) {
    let mut begun: Vec<usize> = Vec::new();
    let mut swaps: Vec<(usize, usize)> = Vec::new();
    let mut ends = vec![0; inlines.len()];
    for (at, inline) in inlines.iter().enumerate() {
        match inline {
            Inline::Open(_) => begun.push(at),
            Inline::Close(_) => {
                if let Some(open) = begun.pop() {
                    ends[open] = at;
                }
            }
            _ => {}
        }
    }
    for at in 0..inlines.len().saturating_sub(1) {
        let italic = inlines[at] == Inline::Open(Style::Italic);
        let bold = inlines[at + 1] == Inline::Open(Style::Bold);
        if italic && bold && ends[at] > 0 && ends[at] == ends[at + 1] + 1 {
            swaps.push((at, ends[at + 1]));
        }
    }
    for (open, close) in swaps {
        inlines.swap(open, open + 1);
        inlines.swap(close, close + 1);
    }
}

fn level_of(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

fn language(kind: &CodeBlockKind<'_>) -> String {
    match kind {
        CodeBlockKind::Indented => String::new(),
        CodeBlockKind::Fenced(info) => info
            .split_whitespace()
            .next()
            .filter(|word| {
                word.len() <= 32
                    && word
                        .chars()
                        .all(|c| c.is_ascii_alphanumeric() || "_+-.#".contains(c))
            })
            .unwrap_or_default()
            .to_owned(),
    }
}
