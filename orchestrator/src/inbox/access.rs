//! Who may speak to which agents: closed unless the configuration opens it.

use std::collections::BTreeMap;

use mayfly_domain::{Channel, Place, Posted};
use serde::{Deserialize, Serialize};

use crate::agent::profile::SHELL;

/// The word that opens a list to all.
pub const EVERYONE: &str = "everyone";

/// Who may use what is configured here. An empty list is nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Audience {
    /// People, by the platform's ids, or `everyone`.
    pub allowed_users: Vec<String>,
    /// Roles, by the platform's ids (Discord).
    pub allowed_roles: Vec<String>,
    /// Programs of others that may start agents, by the platform's ids.
    pub allowed_bots: Vec<String>,
    /// People who may also stop, roll back and remove what others started.
    pub admins: Vec<String>,
}

/// One channel that is served.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelRule {
    /// Profile of its agents; the platform's where none is named.
    pub profile: Option<String>,
    /// Who may speak; the platform's lists where it names nobody.
    #[serde(flatten)]
    pub audience: Audience,
}

/// What is served on one platform, and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// Profile of agents where the channel names none.
    pub profile: String,
    /// Who may speak, in direct conversations and in channels that say nothing else.
    #[serde(flatten)]
    pub audience: Audience,
    /// Channels that are served, by the platform's ids, or `everyone` for each the bot is in.
    pub allowed_channels: Vec<String>,
    /// Channels with rules of their own; they are served.
    pub channels: BTreeMap<String, ChannelRule>,
    /// How many messages of programs in a row a thread takes before a person has to speak.
    pub max_bot_turns: u32,
    /// Minutes after which a message is not run any more when it comes so late (after an outage):
    /// it is parked, and its thread is told.
    pub max_age_minutes: u32,
}

impl Default for Access {
    fn default() -> Self {
        Access {
            profile: SHELL.to_owned(),
            audience: Audience::default(),
            allowed_channels: Vec::new(),
            channels: BTreeMap::new(),
            max_bot_turns: 5,
            max_age_minutes: 120,
        }
    }
}

/// Whether somebody may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    May,
    /// The channel is not served.
    ClosedChannel,
    /// The person is on no list.
    Stranger,
}

impl Access {
    /// Whether the author of a post may speak to agents in this channel: the one its conversation is
    /// in, by the id the configuration knows.
    pub fn judge(&self, posted: &Posted, channel: &Channel) -> Verdict {
        if posted.place != Place::Direct && !self.serves(channel) {
            return Verdict::ClosedChannel;
        }
        let audience = self.audience_of(channel);
        let author = &posted.author.id;
        let may = match posted.by_bot {
            true => audience.allowed_bots.contains(author),
            false => audience.admits(author, &posted.roles),
        };
        if may { Verdict::May } else { Verdict::Stranger }
    }

    /// Profile of agents in a channel.
    pub fn profile_of(&self, channel: &Channel) -> &str {
        let rule = self.channels.get(&channel.channel);
        rule.and_then(|rule| rule.profile.as_deref())
            .unwrap_or(&self.profile)
    }

    /// Profiles that its agents may be made of.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        let named = self
            .channels
            .values()
            .filter_map(|rule| rule.profile.as_deref());
        std::iter::once(self.profile.as_str()).chain(named)
    }

    /// Whether nobody at all may speak: worth a word at start.
    pub fn is_closed(&self) -> bool {
        let closed = |audience: &Audience| {
            audience.allowed_users.is_empty() && audience.allowed_roles.is_empty()
        };
        closed(&self.audience) && self.channels.values().all(|rule| closed(&rule.audience))
    }

    /// Whether somebody may press buttons there.
    pub fn admits(&self, channel: &Channel, who: &str, roles: &[String]) -> bool {
        self.audience_of(channel).admits(who, roles)
    }

    /// Who may change there what others did; empty where everybody may who may speak.
    pub fn admins(&self, channel: &Channel) -> &[String] {
        &self.audience_of(channel).admins
    }

    fn serves(&self, channel: &Channel) -> bool {
        let id = &channel.channel;
        self.channels.contains_key(id)
            || self
                .allowed_channels
                .iter()
                .any(|allowed| allowed == id || allowed == EVERYONE)
    }

    fn audience_of(&self, channel: &Channel) -> &Audience {
        match self.channels.get(&channel.channel) {
            Some(rule) if rule.audience != Audience::default() => &rule.audience,
            _ => &self.audience,
        }
    }
}

impl Audience {
    fn admits(&self, author: &str, roles: &[String]) -> bool {
        let named = |list: &[String]| list.iter().any(|id| id == author);
        self.allowed_users.iter().any(|id| id == EVERYONE)
            || named(&self.allowed_users)
            || named(&self.admins)
            || self.allowed_roles.iter().any(|role| roles.contains(role))
    }
}

#[cfg(test)]
mod tests {
    use mayfly_domain::{Author, PostId};

    use super::*;

    fn posted(place: Place, author: &str, roles: &[&str]) -> Posted {
        let channel = Channel {
            platform: "discord".to_owned(),
            workspace: "g".to_owned(),
            channel: "c1".to_owned(),
        };
        Posted {
            thread: channel.thread("t"),
            id: PostId {
                channel,
                id: "1".to_owned(),
            },
            place,
            author: Author {
                id: author.to_owned(),
                name: "x".to_owned(),
            },
            by_bot: false,
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            text: "hi".to_owned(),
            to_us: true,
            files: Vec::new(),
            twin: None,
            group: None,
            answers: None,
            at: 0,
        }
    }

    fn judge(access: &Access, posted: &Posted) -> Verdict {
        access.judge(posted, &posted.id.channel)
    }

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn se_06_an_empty_list_is_nobody_and_only_the_word_opens_it() {
        let mut access = Access {
            allowed_channels: words(&[EVERYONE]),
            ..Access::default()
        };
        assert!(access.is_closed());
        for place in [Place::Direct, Place::Channel, Place::Thread] {
            assert_eq!(judge(&access, &posted(place, "u1", &[])), Verdict::Stranger);
        }
        access.audience.allowed_users = words(&["nobody-we-know"]);
        assert_eq!(
            judge(&access, &posted(Place::Direct, "u1", &[])),
            Verdict::Stranger
        );
        access.audience.allowed_users = words(&["u1"]);
        assert_eq!(
            judge(&access, &posted(Place::Direct, "u1", &[])),
            Verdict::May
        );
        assert_eq!(
            judge(&access, &posted(Place::Direct, "u2", &[])),
            Verdict::Stranger
        );
        access.audience.allowed_users = words(&[EVERYONE]);
        assert_eq!(
            judge(&access, &posted(Place::Channel, "u2", &[])),
            Verdict::May
        );
    }

    #[test]
    fn a_channel_is_served_when_it_is_named_and_its_own_lists_win() {
        let mut access = Access::default();
        access.audience.allowed_users = words(&["u1"]);
        assert_eq!(
            judge(&access, &posted(Place::Channel, "u1", &[])),
            Verdict::ClosedChannel
        );
        access
            .channels
            .insert("c1".to_owned(), ChannelRule::default());
        assert_eq!(
            judge(&access, &posted(Place::Channel, "u1", &[])),
            Verdict::May
        );
        let rule = access.channels.get_mut("c1").unwrap();
        rule.audience.allowed_roles = words(&["r1"]);
        rule.profile = Some("coder".to_owned());
        assert_eq!(
            judge(&access, &posted(Place::Thread, "u1", &[])),
            Verdict::Stranger
        );
        assert_eq!(
            judge(&access, &posted(Place::Thread, "u9", &["r1"])),
            Verdict::May
        );
        assert_eq!(
            access.profile_of(&posted(Place::Thread, "u9", &[]).id.channel),
            "coder"
        );
    }

    #[test]
    fn ev_09_a_program_speaks_only_by_its_own_list() {
        let mut access = Access::default();
        access.audience.allowed_users = words(&[EVERYONE]);
        let mut post = posted(Place::Direct, "b1", &[]);
        post.by_bot = true;
        assert_eq!(judge(&access, &post), Verdict::Stranger);
        access.audience.allowed_bots = words(&["b1"]);
        assert_eq!(judge(&access, &post), Verdict::May);
    }
}
