//! A person's conversation with the bot on a fake platform, in the same words for all of them.

mod discord;
mod slack;
mod telegram;

pub use discord::on_discord;
pub use slack::{on_slack, on_slack_by_requests};
pub use telegram::{on_telegram, on_telegram_by_requests};

use crate::{fake::Fault, server::Server};

/// Why a bot may write no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shut {
    /// The place was closed for all.
    Archived,
    /// The bot was taken out.
    Removed,
    /// A person wants nothing of it.
    Blocked,
}

/// A conversation on a platform, as the person sees it who began it.
pub trait Conversation {
    /// What the program is told of the platform.
    fn environment(&self) -> Vec<(&'static str, String)>;
    /// Where the platform's WebSocket is, where it has one: `ws://127.0.0.1:PORT`.
    fn socket(&self) -> Option<String> {
        None
    }
    /// The platform tells this address from now on.
    fn tell_socket(&self, _url: String) {}
    /// The program has started: where its platform sends requests, it learns where to.
    fn reach(&self, _server: &Server) {}
    /// Speaks to the bot where it is not spoken with yet.
    fn begin(&mut self, text: &str);
    /// Goes on.
    fn say(&mut self, text: &str);
    /// Goes on with a file.
    fn send(&mut self, text: &str, name: &str, content: &[u8]);
    /// What the bot says there, one text for each post, in their order.
    fn texts(&self) -> Vec<String>;
    /// Names of the files that the bot sent there.
    fn files(&self) -> Vec<String>;
    /// Presses the button of this label.
    fn press(&mut self, label: &str);
    /// The bot may write there no more; what its operator is told of the way out.
    fn shut(&mut self, how: Shut) -> &'static str;
    /// It may again.
    fn readmit(&mut self);
    /// When the bot opens a conversation beside this one, these go wrong, one after the other.
    fn opening_fails(&self, faults: Vec<Fault>);
    /// How many conversations the bot has opened beside this one, as people see it.
    fn opened(&self) -> usize;
    /// Goes over to the conversation that the newest text links to.
    fn follow(&mut self, text: &str);
}
