//! Cuts a row of pieces into parts that fit.
//!
//! A part ends between two pieces: at the last blank line in its second half, else the last line
//! end there, else the last space, else anywhere. White space where it ends is dropped; an
//! indentation that follows a line end inside code is kept.

/// A piece in the main language and in the one beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) main: String,
    pub(super) side: String,
}

impl Pair {
    pub(super) fn push(&mut self, other: &Pair) {
        self.main.push_str(&other.main);
        self.side.push_str(&other.side);
    }
}

/// Lengths in Unicode scalars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) main: usize,
    pub(super) side: usize,
}

impl Size {
    pub(super) fn of(pair: &Pair) -> Size {
        Size {
            main: pair.main.chars().count(),
            side: pair.side.chars().count(),
        }
    }

    pub(super) fn less(self, scalars: usize) -> Size {
        Size {
            main: self.main.saturating_sub(scalars),
            side: self.side.saturating_sub(scalars),
        }
    }

    pub(super) fn within(self, limits: Size) -> bool {
        self.main <= limits.main && self.side <= limits.side
    }

    fn plus(self, other: Size) -> Size {
        Size {
            main: self.main + other.main,
            side: self.side + other.side,
        }
    }

    fn minus(self, other: Size) -> Size {
        Size {
            main: self.main - other.main,
            side: self.side - other.side,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Piece {
        text: Pair,
        size: Size,
        kind: Piece,
        /// A person sees something of it.
        seen: bool,
    },
    Open {
        open: Pair,
        close: Pair,
        opened: Size,
        closed: Size,
        fence: bool,
    },
    Close,
    /// Something that begins at the margin, or ends there: no list is around the lines after it.
    Margin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    Glyph,
    /// Of a list's item.
    Marker,
    Space,
    /// Before a line of a list.
    Indent,
    Newline {
        code: bool,
    },
}

impl Token {
    fn piece(text: Pair, kind: Piece, seen: bool) -> Token {
        Token::Piece {
            size: Size::of(&text),
            text,
            kind,
            seen,
        }
    }

    pub(super) fn glyph(text: Pair, seen: bool) -> Token {
        Token::piece(text, Piece::Glyph, seen)
    }

    pub(super) fn marker(text: Pair) -> Token {
        Token::piece(text, Piece::Marker, true)
    }

    /// Dropped where a part begins or ends.
    pub(super) fn space(text: Pair) -> Token {
        Token::piece(text, Piece::Space, false)
    }

    pub(super) fn indent(text: Pair) -> Token {
        Token::piece(text, Piece::Indent, false)
    }

    pub(super) fn newline(text: Pair, code: bool) -> Token {
        Token::piece(text, Piece::Newline { code }, false)
    }

    /// Opened again at the beginning of a part.
    pub(super) fn open(open: Pair, close: Pair) -> Token {
        Token::span(open, close, false)
    }

    /// As [`Token::open`], around code.
    pub(super) fn fence(open: Pair, close: Pair) -> Token {
        Token::span(open, close, true)
    }

    fn span(open: Pair, close: Pair, fence: bool) -> Token {
        let (opened, closed) = (Size::of(&open), Size::of(&close));
        Token::Open {
            open,
            close,
            opened,
            closed,
            fence,
        }
    }

    pub(super) fn is_close(&self) -> bool {
        *self == Token::Close
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Token::Open { .. })
    }

    fn is(&self, wanted: Piece) -> bool {
        matches!(self, Token::Piece { kind, .. } if *kind == wanted)
    }

    fn is_space(&self) -> bool {
        self.is(Piece::Space) || self.is(Piece::Indent)
    }

    fn is_newline(&self) -> bool {
        self.is(Piece::Newline { code: true }) || self.is(Piece::Newline { code: false })
    }

    /// A platform refuses a message in which nothing can be seen.
    pub(super) fn visible(&self) -> bool {
        matches!(self, Token::Piece { seen: true, .. })
    }
}

/// All parts. Nothing that can be seen is left out.
pub(super) fn split(tokens: &[Token], limits: Size) -> Vec<Pair> {
    let mut parts = Vec::new();
    let mut cursor = Cursor::default();
    while cursor.next < tokens.len() {
        let from = cursor.next;
        let (part, after) = Part::fill(tokens, cursor, limits);
        if tokens[from..after.next].iter().any(Token::visible) {
            parts.push(part);
        }
        cursor = after;
    }
    parts
}

/// The first part in which something can be seen.
pub(super) fn first(tokens: &[Token], limits: Size) -> Pair {
    let mut cursor = Cursor::default();
    while cursor.next < tokens.len() {
        let from = cursor.next;
        let (part, after) = Part::fill(tokens, cursor, limits);
        if tokens[from..after.next].iter().any(Token::visible) {
            return part;
        }
        cursor = after;
    }
    Pair::default()
}

/// Where the next part begins: a token, and the spans that are open there (their tokens).
#[derive(Debug, Clone, Default)]
struct Cursor {
    next: usize,
    open: Vec<usize>,
}

/// A place where the part may end.
struct Cut {
    /// Bytes of both texts up to there.
    length: (usize, usize),
    main: usize,
    /// How many of the spans are open there.
    open: usize,
    /// The spans themselves; filled for white space, where the next part may begin deeper.
    after: Cursor,
}

/// Nothing is known of the lines to come.
const NONE_YET: Size = Size {
    main: usize::MAX,
    side: usize::MAX,
};

struct Part<'a> {
    tokens: &'a [Token],
    limits: Size,
    text: Pair,
    size: Size,
    /// Closers of what is open.
    owed: Size,
    open: Vec<usize>,
    /// After the last glyph or closer: (text, main size, open spans, next token).
    safe: Option<((usize, usize), usize, usize, usize)>,
    /// By rank: space, line end, blank line.
    cuts: [Option<Cut>; 3],
    /// Line ends in the white space at hand.
    newlines: usize,
    in_space: bool,
    /// How much of an indentation is left out.
    dedent: Size,
    /// The last line's end.
    newline: Pair,
    /// The rest of a text that began before: a list right below it would be part of it.
    rest: bool,
}

impl<'a> Part<'a> {
    fn fill(tokens: &'a [Token], cursor: Cursor, limits: Size) -> (Pair, Cursor) {
        let mut part = Part {
            tokens,
            limits,
            text: Pair::default(),
            size: Size::default(),
            owed: Size::default(),
            open: Vec::new(),
            safe: None,
            cuts: [None, None, None],
            newlines: 0,
            in_space: false,
            dedent: NONE_YET,
            newline: Pair::default(),
            rest: false,
        };
        let mut at = part.begin(cursor);
        while at < tokens.len() {
            if !part.fits(at) && part.safe.is_some() {
                return part.cut(at);
            }
            part.take(at);
            at += 1;
        }
        part.finish(at)
    }

    /// Opens again what is open, and leaves out what a part must not begin with.
    fn begin(&mut self, cursor: Cursor) -> usize {
        let Cursor { mut next, mut open } = cursor;
        let before = self.tokens[..next]
            .iter()
            .rev()
            .find(|token| !(token.is_space() || token.is_open() || **token == Token::Margin));
        let mut middle = before.is_some_and(|token| !token.is_newline());
        while let Some(token) = self.tokens.get(next) {
            match token {
                Token::Close => {
                    open.pop();
                }
                token if token.is_newline() => middle = false,
                Token::Piece {
                    size,
                    kind: Piece::Indent,
                    ..
                } => self.dedent = *size,
                Token::Margin => self.dedent = NONE_YET,
                token if token.is_space() => {}
                _ => break,
            }
            next += 1;
        }
        let mut fence = false;
        for index in open {
            if let Token::Open { fence: code, .. } = &self.tokens[index] {
                fence |= code;
            }
            self.span(index);
        }
        self.rest = middle && !fence;
        if self.rest && self.tokens.get(next).is_some_and(starts_a_block) {
            let joiner = super::layout::JOINER.to_owned();
            let side = if self.limits.side > 0 {
                joiner.clone()
            } else {
                String::new()
            };
            let pair = Pair { main: joiner, side };
            self.size = self.size.plus(Size::of(&pair));
            self.text.push(&pair);
        }
        next
    }

    fn fits(&self, at: usize) -> bool {
        let more = match &self.tokens[at] {
            Token::Piece { size, .. } if self.begins_a_list(at) => size.plus(*size),
            Token::Piece { size, .. } if self.leaves_a_list(at) => {
                size.plus(Size::of(&self.between()))
            }
            Token::Piece { size, .. } => *size,
            Token::Open { opened, closed, .. } => opened.plus(*closed),
            Token::Close | Token::Margin => Size::default(),
        };
        self.size.plus(self.owed).plus(more).within(self.limits)
    }

    /// The line's end between the rest of a text and a list, which has to be a blank line.
    fn begins_a_list(&self, at: usize) -> bool {
        let mut after = self.tokens[at + 1..].iter();
        self.rest
            && self.tokens[at].is(Piece::Newline { code: false })
            && after
                .find(|token| !token.is_space())
                .is_some_and(|token| token.is(Piece::Marker))
    }

    /// A numbered item further out than the line that the part began with: at one margin its number
    /// would go on from those of the list within.
    fn leaves_a_list(&self, at: usize) -> bool {
        let Token::Piece {
            size,
            kind: Piece::Indent,
            ..
        } = &self.tokens[at]
        else {
            return false;
        };
        let numbered = match self.tokens.get(at + 1) {
            Some(Token::Piece {
                text,
                kind: Piece::Marker,
                ..
            }) => text.main.starts_with(|c: char| c.is_ascii_digit()),
            _ => false,
        };
        let further_out = self.dedent != NONE_YET && size.main < self.dedent.main;
        further_out && numbered && !self.newline.main.is_empty()
    }

    /// A paragraph in which nothing is to be seen.
    fn between(&self) -> Pair {
        let paragraph = |newline: &str| match newline {
            "" => String::new(),
            end => format!("{end}{}{end}{end}", super::layout::JOINER),
        };
        Pair {
            main: paragraph(&self.newline.main),
            side: paragraph(&self.newline.side),
        }
    }

    fn span(&mut self, index: usize) {
        if let Token::Open {
            open,
            opened,
            closed,
            ..
        } = &self.tokens[index]
        {
            self.text.push(open);
            self.size = self.size.plus(*opened);
            self.owed = self.owed.plus(*closed);
            self.open.push(index);
        }
    }

    fn take(&mut self, at: usize) {
        match &self.tokens[at] {
            Token::Open { .. } => {
                self.span(at);
                self.in_space = false;
            }
            Token::Close => {
                self.close();
                self.mark(at);
            }
            Token::Margin => self.dedent = NONE_YET,
            Token::Piece {
                text,
                size,
                kind: Piece::Indent,
                ..
            } => {
                if self.leaves_a_list(at) {
                    let between = self.between();
                    self.size = self.size.plus(Size::of(&between));
                    self.text.push(&between);
                }
                self.indent(text, *size);
                self.in_space = true;
                self.offer(at, false);
            }
            Token::Piece {
                text, size, kind, ..
            } => {
                let twice = self.begins_a_list(at);
                self.rest &= !twice;
                match kind {
                    Piece::Glyph | Piece::Marker => {}
                    _ => {
                        if !self.in_space {
                            (self.in_space, self.newlines) = (true, 0);
                        }
                        self.newlines += usize::from(*kind != Piece::Space);
                    }
                }
                if matches!(kind, Piece::Newline { .. }) {
                    self.newline = text.clone();
                }
                for _ in 0..if twice { 2 } else { 1 } {
                    self.text.push(text);
                    self.size = self.size.plus(*size);
                }
                match kind {
                    Piece::Glyph | Piece::Marker => self.mark(at),
                    Piece::Space | Piece::Indent => self.offer(at, false),
                    Piece::Newline { code } => self.offer(at, *code),
                }
            }
        }
    }

    /// Where a part begins, or lists go on below code, the list around is not there: what is left
    /// of an indentation is what goes deeper than the first line.
    fn indent(&mut self, text: &Pair, size: Size) {
        let (main, side) = (
            self.dedent.main.min(size.main),
            self.dedent.side.min(size.side),
        );
        self.dedent = Size { main, side };
        // Indentations are spaces.
        let text = Pair {
            main: text.main[main..].to_owned(),
            side: text.side[side..].to_owned(),
        };
        self.size = self.size.plus(Size::of(&text));
        self.text.push(&text);
    }

    fn close(&mut self) {
        if let Some(Token::Open { close, closed, .. }) =
            self.open.pop().map(|index| &self.tokens[index])
        {
            self.text.push(close);
            self.size = self.size.plus(*closed);
            self.owed = self.owed.minus(*closed);
        }
    }

    fn mark(&mut self, at: usize) {
        self.in_space = false;
        let length = (self.text.main.len(), self.text.side.len());
        self.safe = Some((length, self.size.main, self.open.len(), at + 1));
    }

    /// White space ends here: the part may end before it, and the next begin after it.
    fn offer(&mut self, at: usize, code: bool) {
        let Some((length, main, open, _)) = self.safe else {
            return;
        };
        let rank = match self.newlines {
            0 => 0,
            1 => 1,
            _ if code => 1,
            _ => 2,
        };
        self.cuts[rank] = Some(Cut {
            length,
            main,
            open,
            after: Cursor {
                next: at + 1,
                open: self.open.clone(),
            },
        });
    }

    /// The part is full: ends it at the best place.
    fn cut(mut self, at: usize) -> (Pair, Cursor) {
        let half = self.limits.main / 2;
        let best = (0..3)
            .rev()
            .find(|rank| {
                self.cuts[*rank]
                    .as_ref()
                    .is_some_and(|cut| cut.main >= half)
            })
            .and_then(|rank| self.cuts[rank].take());
        let (length, open, after) = match (best, self.safe) {
            (Some(cut), _) => (cut.length, cut.open, cut.after),
            (None, Some((length, _, open, next))) => {
                let open_after = self.open[..open.min(self.open.len())].to_vec();
                (
                    length,
                    open,
                    Cursor {
                        next,
                        open: open_after,
                    },
                )
            }
            (None, None) => return self.finish(at),
        };
        self.end(length, &after.open[..open.min(after.open.len())]);
        (self.text, after)
    }

    fn finish(mut self, at: usize) -> (Pair, Cursor) {
        let open = std::mem::take(&mut self.open);
        let length = match self.safe {
            Some((length, _, still, _)) if still == open.len() => length,
            _ => (self.text.main.len(), self.text.side.len()),
        };
        self.end(length, &open);
        (self.text, Cursor { next: at, open })
    }

    fn end(&mut self, length: (usize, usize), open: &[usize]) {
        self.text.main.truncate(length.0);
        self.text.side.truncate(length.1);
        for index in open.iter().rev() {
            if let Token::Open { close, .. } = &self.tokens[*index] {
                self.text.push(close);
            }
        }
    }
}

/// In the middle of a line these are letters; at its beginning some language takes them for marks.
fn starts_a_block(token: &Token) -> bool {
    let Token::Piece { text, .. } = token else {
        return false;
    };
    let first = |text: &str| text.chars().next();
    [first(&text.main), first(&text.side)]
        .into_iter()
        .flatten()
        .any(|c| c.is_ascii_digit() || "#>-+=:|&*".contains(c))
}
