//! Blocks as a row of pieces in a platform's language, each of which is whole.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::{
    document::{Block, Gap, Inline, Kind, Lead, Style},
    flavour::{At, Flavour, Wrap},
    split::{Pair, Size, Token},
    url,
};

/// A code span up to this long is never cut.
const WHOLE_CODE: usize = 200;
/// A grapheme cluster longer than this is no writing.
const WHOLE_CLUSTER: usize = 64;
/// A column is padded up to this width.
const WIDEST_COLUMN: usize = 40;

/// The language a message is posted in, and a second one that is posted or kept beside it.
#[derive(Clone, Copy)]
pub(super) struct Flavours<'a> {
    pub(super) main: &'a dyn Flavour,
    pub(super) side: Option<&'a dyn Flavour>,
}

impl Flavours<'_> {
    fn pair(&self, write: impl Fn(&dyn Flavour) -> String) -> Pair {
        Pair {
            main: write(self.main),
            side: self.side.map(write).unwrap_or_default(),
        }
    }

    fn wrap(&self, wrap: impl Fn(&dyn Flavour) -> Wrap) -> (Pair, Pair) {
        let main = wrap(self.main);
        let side = self.side.map(wrap).unwrap_or_default();
        let pair = |main, side| Pair { main, side };
        (pair(main.open, side.open), pair(main.close, side.close))
    }
}

/// What was laid out.
pub(super) struct Laid {
    pub(super) list: Vec<Token>,
    /// False if it ends early, since it fills more messages than are ever posted.
    pub(super) complete: bool,
}

impl Laid {
    pub(super) fn visible(&self) -> bool {
        self.list.iter().any(Token::visible)
    }
}

/// Shown as nothing.
pub(crate) fn invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Writes the blocks in both languages.
pub(super) fn tokens(blocks: &[Block], flavours: Flavours<'_>, limits: Size) -> Laid {
    let mut layout = Layout {
        flavours,
        limits,
        list: Vec::new(),
        line: String::new(),
        quote: None,
        size: 0,
    };
    let enough = limits.main * (super::MAX_PARTS + 1);
    for block in blocks {
        layout.block(block, enough);
        if layout.size > enough {
            break;
        }
    }
    layout.end_quote();
    let complete = layout.size <= enough;
    Laid {
        list: layout.list,
        complete,
    }
}

struct Layout<'a> {
    flavours: Flavours<'a>,
    limits: Size,
    list: Vec<Token>,
    /// What the line holds so far, as a reader sees it.
    line: String,
    quote: Option<usize>,
    /// Scalars of all glyphs in the main language.
    size: usize,
}

impl Layout<'_> {
    fn block(&mut self, block: &Block, enough: usize) {
        let same = block.quote.is_some() && block.quote == self.quote;
        let quoted_before = self.quote.is_some();
        if !same {
            self.end_quote();
        }
        if block.gap != Gap::None {
            let once = block.gap == Gap::Line
                || (!same
                    && (quoted_before || block.quote.is_some())
                    && self.flavours.main.roomy_quotes());
            for _ in 0..if once { 1 } else { 2 } {
                self.newline();
            }
        }
        if block.quote.is_some() && !same {
            let (open, close) = self.flavours.wrap(|f| f.quote());
            self.list.push(Token::open(open, close));
            self.list.push(Token::Margin);
            self.quote = block.quote;
        }
        match &block.kind {
            Kind::Text {
                lead,
                heading,
                inlines,
            } => self.text(lead, *heading, inlines, enough),
            Kind::Code { language, text } => self.fence(language, text, enough),
            Kind::Table(rows) => self.table(rows, enough),
        }
    }

    fn end_quote(&mut self) {
        if self.quote.take().is_some() {
            self.list.push(Token::Close);
            self.list.push(Token::Margin);
        }
    }

    fn newline(&mut self) {
        let quoted = self.quote.is_some();
        let pair = self.flavours.pair(|f| {
            let mut line = "\n".to_owned();
            if quoted {
                line.push_str(f.quote_line());
            }
            line
        });
        self.list.push(Token::newline(pair, false));
        self.line.clear();
    }

    fn glyph(&mut self, seen: &str, pair: Pair) {
        self.size += pair.main.chars().count();
        self.line.push_str(seen);
        let visible = |c: char| !c.is_whitespace() && !invisible(c);
        self.list
            .push(Token::glyph(pair, seen.chars().any(visible)));
    }

    fn text(&mut self, lead: &Lead, heading: Option<u8>, inlines: &[Inline], enough: usize) {
        let mut under = lead.indents.clone();
        under.extend(lead.marker.map(|marker| marker.width()));
        self.indent(&lead.indents);
        if let Some(marker) = lead.marker {
            let empty = inlines.is_empty();
            let pair = self
                .flavours
                .pair(|f| f.marker(marker, lead.indents.len(), empty));
            self.size += pair.main.chars().count();
            self.list.push(Token::marker(pair));
            self.line.clear();
        }
        let heading = heading.filter(|_| !inlines.is_empty());
        if let Some(level) = heading {
            // Within a list it is not a heading of the whole.
            let level = if under.is_empty() { level } else { 6 };
            let (open, close) = self.flavours.wrap(|f| f.heading(level));
            self.list.push(Token::open(open, close));
        }
        self.inlines(inlines, heading.is_some(), &under, enough);
        if heading.is_some() {
            self.list.push(Token::Close);
        }
    }

    fn indent(&mut self, indents: &[usize]) {
        let pair = self.flavours.pair(|f| f.indent(indents));
        self.list.push(Token::indent(pair));
    }

    fn inlines(&mut self, inlines: &[Inline], heading: bool, under: &[usize], enough: usize) {
        let mut open: Vec<&Style> = Vec::new();
        for (n, inline) in inlines.iter().enumerate() {
            if self.size > enough {
                break;
            }
            match inline {
                Inline::Text(text) => self.words(text, enough, open.iter().any(|s| s.is_link())),
                Inline::Code(code) => self.code(code, enough),
                Inline::Url(url) => self.glyph(url, self.flavours.pair(|f| f.url(url))),
                Inline::Break if heading || open.iter().any(|style| style.is_link()) => {
                    let pair = self.flavours.pair(|_| " ".to_owned());
                    self.list.push(Token::space(pair));
                    self.line.push(' ');
                }
                Inline::Break => self.line_break(&open, under, first_char(&inlines[n + 1..])),
                Inline::Open(style) => {
                    self.style(style, first_char(&inlines[n + 1..]));
                    open.push(style);
                }
                Inline::Close(_) => {
                    let after = after_end(&inlines[n + 1..]);
                    let link = n > 0 && inlines[n - 1].ends_a_link();
                    self.end_style(after, link);
                    open.pop();
                }
            }
        }
        for _ in open {
            self.list.push(Token::Close);
        }
    }

    /// Marks of one kind that touch would be read as other marks, and a mark between a letter and
    /// a sign as no mark.
    fn style(&mut self, style: &Style, inside: Option<char>) {
        let touching = self.list.last().is_some_and(Token::is_close);
        if touching {
            self.joiner();
        }
        let (open, close) = self.flavours.wrap(|f| f.style(style));
        let nested = self.list.last().is_some_and(Token::is_open);
        let outside = self.last_char();
        self.list.push(Token::open(open, close));
        if !nested && loses_mark(outside, inside) {
            self.joiner();
        }
    }

    fn end_style(&mut self, outside: Option<char>, after_link: bool) {
        let nested = self.list.last().is_some_and(Token::is_close);
        let inside = match after_link {
            true => Some(')'),
            false if nested => None,
            false => self.last_char(),
        };
        if loses_mark(outside, inside) {
            self.joiner();
        }
        self.list.push(Token::Close);
    }

    fn joiner(&mut self) {
        let joiner = |f: &dyn Flavour| if f.marks_touch() { JOINER } else { "" };
        let pair = self.flavours.pair(|f| joiner(f).to_owned());
        self.list.push(Token::glyph(pair, false));
    }

    /// The last character that was written, apart from marks.
    fn last_char(&self) -> Option<char> {
        self.list.iter().rev().find_map(|token| match token {
            Token::Piece { text, .. } if text.side.is_empty() => text.main.chars().next_back(),
            Token::Piece { text, .. } => text.side.chars().next_back(),
            _ => None,
        })
    }

    fn line_break(&mut self, open: &[&Style], under: &[usize], next: Option<char>) {
        let ends = self.flavours.main.styles_end_with_lines();
        if ends {
            for _ in open {
                self.end_style(None, false);
            }
        }
        self.newline();
        self.indent(under);
        if ends {
            for style in open {
                self.style(style, next);
            }
        }
    }

    fn words(&mut self, text: &str, enough: usize, in_link: bool) {
        let mut at = 0;
        while at < text.len() && self.size <= enough {
            let rest = &text[at..];
            let apart = !self
                .line
                .chars()
                .next_back()
                .is_some_and(char::is_alphanumeric);
            if apart
                && !in_link
                && let Some(length) = url::bare(rest)
            {
                let address = &rest[..length];
                self.glyph(address, self.flavours.pair(|f| f.url(address)));
                at += length;
                continue;
            }
            let cluster = rest.graphemes(true).next().unwrap_or(rest);
            for piece in pieces(cluster) {
                at += piece.len();
                self.cluster(piece, &text[at..], in_link);
            }
        }
    }

    fn cluster(&mut self, cluster: &str, after: &str, in_link: bool) {
        if cluster.chars().all(|c| matches!(c, ' ' | '\t')) {
            let pair = self.flavours.pair(|_| cluster.to_owned());
            self.list.push(Token::space(pair));
            self.line.push_str(cluster);
            return;
        }
        let mut pair = Pair::default();
        for (start, c) in cluster.char_indices() {
            let inside = &cluster[start + c.len_utf8()..];
            let at = At {
                line: &self.line,
                rest: if inside.is_empty() { after } else { inside },
                in_link,
            };
            pair.push(&self.flavours.pair(|f| f.char(c, &at)));
            self.line.push(c);
        }
        self.line.truncate(self.line.len() - cluster.len());
        self.glyph(cluster, pair);
    }

    fn code(&mut self, code: &str, enough: usize) {
        if code.is_empty() {
            return;
        }
        if code.chars().count() <= WHOLE_CODE {
            self.glyph(code, self.flavours.pair(|f| f.code_span(code)));
            return;
        }
        let (open, close) = self.flavours.wrap(|f| f.code_wrap());
        self.list.push(Token::open(open, close));
        let code = code.replace('`', "ˋ");
        let mut at = 0;
        for piece in code.graphemes(true).flat_map(pieces) {
            if self.size > enough {
                break;
            }
            at += piece.len();
            if piece == " " {
                self.list
                    .push(Token::space(self.flavours.pair(|_| " ".to_owned())));
            } else {
                self.code_piece(piece, &code[at..], &mut 0);
            }
        }
        self.list.push(Token::Close);
        self.line.push('x');
    }

    fn fence(&mut self, language: &str, text: &str, enough: usize) {
        let (open, close) = self.flavours.wrap(|f| f.fence(language));
        self.list.push(Token::fence(open, close));
        let (mut at, mut ticks, mut indentation) = (0, 0, true);
        for piece in text.graphemes(true).flat_map(pieces) {
            if self.size > enough {
                break;
            }
            at += piece.len();
            if piece == "\n" {
                let pair = self.flavours.pair(|_| "\n".to_owned());
                self.list.push(Token::newline(pair, true));
                (ticks, indentation) = (0, true);
            } else if piece == " " && !indentation {
                self.list
                    .push(Token::space(self.flavours.pair(|_| " ".to_owned())));
            } else {
                indentation &= piece.trim().is_empty();
                self.code_piece(piece, &text[at..], &mut ticks);
            }
        }
        self.list.push(Token::Close);
        self.list.push(Token::Margin);
        self.line.clear();
    }

    /// `ticks` counts the backticks in a row up to here.
    fn code_piece(&mut self, piece: &str, after: &str, ticks: &mut usize) {
        let mut pair = Pair::default();
        for (start, c) in piece.char_indices() {
            *ticks = if c == '`' { *ticks + 1 } else { 0 };
            let apart = *ticks > 2 && *ticks % 2 == 1;
            let inside = &piece[start + c.len_utf8()..];
            let rest = if inside.is_empty() { after } else { inside };
            pair.push(&self.flavours.pair(|f| {
                let joiner = if apart && f.fence_ends_at_ticks() {
                    JOINER
                } else {
                    ""
                };
                format!("{joiner}{}", f.code_char(c, rest))
            }));
        }
        self.glyph(piece, pair);
    }

    /// Native where a flavour has tables and all of it fits into one message, else as aligned text.
    fn table(&mut self, rows: &[Vec<Vec<Inline>>], enough: usize) {
        let text = aligned(&rows[..rows.len().min(enough)]);
        if text.trim().is_empty() {
            return;
        }
        let native = self.flavours.side.and_then(|f| f.table(rows));
        let Some(native) = native else {
            return self.fence("", &text, enough);
        };
        let pair = Pair {
            main: {
                let wrap = self.flavours.main.fence("");
                let mut text = quiet_ticks(&text);
                text = text
                    .chars()
                    .map(|c| self.flavours.main.code_char(c, ""))
                    .collect();
                format!("{}{text}{}", wrap.open, wrap.close)
            },
            side: native,
        };
        if Size::of(&pair).within(self.limits.less(super::CONTINUES.len() + 2)) {
            self.glyph(&text, pair);
            self.list.push(Token::Margin);
            self.line.clear();
        } else {
            self.fence("", &text, enough);
        }
    }
}

/// Whether Markdown sees no mark between these two.
pub(super) fn loses_mark(outside: Option<char>, inside: Option<char>) -> bool {
    let Some(inside) = inside else {
        return false;
    };
    let letter = |c: char| !c.is_whitespace() && !c.is_ascii_punctuation();
    inside.is_whitespace() || (!inside.is_alphanumeric() && outside.is_some_and(letter))
}

/// What stands behind the end of a style.
pub(super) fn after_end(after: &[Inline]) -> Option<char> {
    match after.iter().find(|i| !matches!(i, Inline::Close(_))) {
        // A joiner comes between.
        Some(Inline::Open(_)) => Some('a'),
        _ => first_char(after),
    }
}

/// The first character that these begin with when written, apart from marks.
pub(super) fn first_char(inlines: &[Inline]) -> Option<char> {
    inlines.iter().find_map(|inline| match inline {
        Inline::Text(text) if super::url::bare(text).is_some() => Some('<'),
        Inline::Text(text) => text.chars().next(),
        Inline::Code(_) => Some('`'),
        Inline::Url(_) => Some('<'),
        Inline::Break => Some(' '),
        Inline::Open(Style::Link(_)) => Some('['),
        Inline::Open(_) | Inline::Close(_) => None,
    })
}

/// Holds two characters apart and shows as nothing.
pub(super) const JOINER: &str = "\u{2060}";

/// Never three backticks in a row.
fn quiet_ticks(text: &str) -> String {
    let mut quiet = String::with_capacity(text.len());
    let mut ticks = 0;
    for c in text.chars() {
        ticks = if c == '`' { ticks + 1 } else { 0 };
        if ticks > 2 && ticks % 2 == 1 {
            quiet.push_str(JOINER);
        }
        quiet.push(c);
    }
    quiet
}

/// A cluster, or pieces of one that is too long to be kept whole.
fn pieces(cluster: &str) -> impl Iterator<Item = &str> {
    let mut rest = cluster;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest
            .char_indices()
            .nth(WHOLE_CLUSTER)
            .map_or(rest.len(), |(at, _)| at);
        let (piece, more) = rest.split_at(end);
        rest = more;
        Some(piece)
    })
}

fn aligned(rows: &[Vec<Vec<Inline>>]) -> String {
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| cell_text(cell)).collect())
        .collect();
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let widths = cells.iter().filter_map(|row| row.get(column));
        widths
            .map(|cell| cell.width())
            .max()
            .unwrap_or(0)
            .min(WIDEST_COLUMN)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let lines: Vec<String> = cells
        .iter()
        .map(|row| {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.push_str(&" ".repeat(width.saturating_sub(cell.width()) + 2));
            }
            line.trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

/// An address behind a label would be lost in plain text.
fn cell_text(cell: &[Inline]) -> String {
    let mut text = String::new();
    for inline in cell {
        match inline {
            Inline::Text(t) | Inline::Code(t) | Inline::Url(t) => text.push_str(t),
            Inline::Break => text.push(' '),
            Inline::Close(Style::Link(url)) => text.push_str(&format!(" ({url})")),
            Inline::Open(_) | Inline::Close(_) => {}
        }
    }
    text
}

impl Inline {
    pub(super) fn ends_a_link(&self) -> bool {
        matches!(self, Inline::Close(Style::Link(_)))
    }
}

impl Style {
    fn is_link(&self) -> bool {
        matches!(self, Style::Link(_))
    }
}
