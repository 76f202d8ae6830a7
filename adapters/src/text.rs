//! A reply's Markdown as the text each platform shows.
//!
//! `document` reads Markdown into blocks, a `flavour` writes them in a platform's language, `split`
//! cuts what was written. Cut after converting, so that a limit is kept to the character and every
//! part is whole: marks are closed where a part ends and opened again where the next begins, an
//! entity, an escape, a short code span, an address and a grapheme cluster are never cut. Nobody is
//! pinged by what an agent wrote.
//!
//! What a part may lose is white space at its ends. Lengths are Unicode scalars.

pub mod discord;
mod document;
mod flavour;
mod layout;
pub mod slack;
mod split;
pub mod telegram;
mod url;

pub(crate) use layout::invisible;

/// Most messages one reply becomes; a longer one is a file.
pub const MAX_PARTS: usize = 3;

/// The name of the file that holds a reply too long for messages.
pub const FILE_NAME: &str = "reply.md";

/// What stands at the end of a long reply's beginning.
pub(crate) const CONTINUES: &str = "(The whole reply is in the attached file.)";

/// A reply as it is posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rendered<P> {
    /// At most [`MAX_PARTS`] messages in their order. None if nothing in the reply can be seen.
    Parts(Vec<P>),
    /// Too long for messages.
    Long {
        /// How it begins, and that the rest is in the file.
        summary: P,
        /// All of it.
        file: File,
    },
}

/// A file that is posted in place of a long text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Name without folders.
    pub name: String,
    /// The reply as the agent wrote it.
    pub content: String,
}

/// Converts and cuts; `part` makes a platform's message from both languages of a part.
fn render<P>(
    source: &str,
    flavours: layout::Flavours<'_>,
    limits: split::Size,
    part: impl Fn(split::Pair) -> P,
) -> Rendered<P> {
    let mut blocks = document::read(source);
    if !layout::tokens(&blocks, flavours, limits).visible() {
        // Only marks, such as a link definition: better as it is than nothing.
        blocks = document::verbatim(source);
    }
    let tokens = layout::tokens(&blocks, flavours, limits);
    if !tokens.visible() {
        return Rendered::Parts(Vec::new());
    }
    if tokens.complete {
        let parts = split::split(&tokens.list, limits);
        if parts.len() <= MAX_PARTS {
            return Rendered::Parts(parts.into_iter().map(part).collect());
        }
    }
    let note = format!("\n\n{CONTINUES}");
    let room = note.chars().count();
    let mut summary = split::first(&tokens.list, limits.less(room));
    summary.main.push_str(&note);
    if flavours.side.is_some() {
        summary.side.push_str(&note);
    }
    Rendered::Long {
        summary: part(summary),
        file: File {
            name: FILE_NAME.to_owned(),
            content: source.to_owned(),
        },
    }
}
