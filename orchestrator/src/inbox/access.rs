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

/// One channel that is served. A list that it does not have is the platform's; an empty one is nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelRule {
    /// Profile of its agents; the platform's where none is named.
    pub profile: Option<String>,
    /// People. With one of this and `allowed_roles` the channel has both of its own.
    pub allowed_users: Option<Vec<String>>,
    /// Roles.
    pub allowed_roles: Option<Vec<String>>,
    /// Programs of others.
    pub allowed_bots: Option<Vec<String>>,
    /// People who may also change what others did, and always speak.
    pub admins: Option<Vec<String>>,
}

/// Who may speak in one channel: its own lists, and the platform's where it has none.
struct Heard<'a> {
    users: &'a [String],
    roles: &'a [String],
    bots: &'a [String],
    admins: &'a [String],
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
        let heard = self.heard_in(channel);
        let author = &posted.author.id;
        let may = match posted.by_bot {
            true => heard.bots.contains(author),
            false => heard.admits(author, &posted.roles),
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
        let mut rules = self.channels.values().map(Some);
        self.heard(None).is_nobody() && rules.all(|rule| self.heard(rule).is_nobody())
    }

    /// Channels with rules of their own by which nobody may speak there.
    pub fn closed_channels(&self) -> impl Iterator<Item = &str> {
        let closed = |rule: &ChannelRule| self.heard(Some(rule)).is_nobody();
        let rules = self.channels.iter();
        rules.filter_map(move |(id, rule)| closed(rule).then_some(id.as_str()))
    }

    /// Whether somebody may press buttons there.
    pub fn admits(&self, channel: &Channel, who: &str, roles: &[String]) -> bool {
        self.heard_in(channel).admits(who, roles)
    }

    /// Who may change there what others did; none where everybody may who may speak.
    pub fn admins(&self, channel: &Channel) -> Option<&[String]> {
        let rule = self.channels.get(&channel.channel);
        match rule.and_then(|rule| rule.admins.as_deref()) {
            Some(own) => Some(own),
            None => Some(&self.audience.admins[..]).filter(|all| !all.is_empty()),
        }
    }

    fn serves(&self, channel: &Channel) -> bool {
        let id = &channel.channel;
        self.channels.contains_key(id)
            || self
                .allowed_channels
                .iter()
                .any(|allowed| allowed == id || allowed == EVERYONE)
    }

    fn heard_in(&self, channel: &Channel) -> Heard<'_> {
        self.heard(self.channels.get(&channel.channel))
    }

    fn heard<'a>(&'a self, rule: Option<&'a ChannelRule>) -> Heard<'a> {
        let all = &self.audience;
        let mut heard = Heard {
            users: &all.allowed_users,
            roles: &all.allowed_roles,
            bots: &all.allowed_bots,
            admins: &all.admins,
        };
        let Some(rule) = rule else { return heard };
        // A channel that is kept for some people is not opened by a role that another list names.
        if rule.allowed_users.is_some() || rule.allowed_roles.is_some() {
            heard.users = rule.allowed_users.as_deref().unwrap_or_default();
            heard.roles = rule.allowed_roles.as_deref().unwrap_or_default();
        }
        heard.bots = rule.allowed_bots.as_deref().unwrap_or(heard.bots);
        heard.admins = rule.admins.as_deref().unwrap_or(heard.admins);
        heard
    }
}

impl Heard<'_> {
    fn admits(&self, author: &str, roles: &[String]) -> bool {
        let named = |list: &[String]| list.iter().any(|id| id == author);
        self.users.iter().any(|id| id == EVERYONE)
            || named(self.users)
            || named(self.admins)
            || self.roles.iter().any(|role| roles.contains(role))
    }

    fn is_nobody(&self) -> bool {
        self.users.is_empty() && self.roles.is_empty() && self.admins.is_empty()
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
            words_of: None,
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
        rule.allowed_roles = Some(words(&["r1"]));
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
    fn se_06_a_list_that_a_channel_has_is_its_own_also_when_it_is_empty() {
        let mut access = Access {
            audience: Audience {
                allowed_users: words(&["u1"]),
                allowed_roles: words(&["r1"]),
                allowed_bots: words(&["b1"]),
                admins: words(&["boss"]),
            },
            ..Access::default()
        };
        let mut robot = posted(Place::Channel, "b1", &[]);
        robot.by_bot = true;
        let heard = |access: &Access| {
            [
                posted(Place::Channel, "u1", &[]),
                posted(Place::Channel, "u2", &["r1"]),
                robot.clone(),
                posted(Place::Channel, "boss", &[]),
            ]
            .map(|post| judge(access, &post) == Verdict::May)
        };
        let with = |rule: ChannelRule| {
            let mut access = access.clone();
            access.channels.insert("c1".to_owned(), rule);
            access
        };
        let none = Some(Vec::new());
        let inherits = with(ChannelRule::default());
        assert_eq!(heard(&inherits), [true; 4]);
        assert_eq!(inherits.closed_channels().count(), 0);
        let people = with(ChannelRule {
            allowed_users: none.clone(),
            ..ChannelRule::default()
        });
        assert_eq!(heard(&people), [false, false, true, true]);
        let roles = with(ChannelRule {
            allowed_roles: none.clone(),
            ..ChannelRule::default()
        });
        assert_eq!(heard(&roles), [false, false, true, true]);
        let closed = with(ChannelRule {
            allowed_users: none.clone(),
            allowed_bots: none.clone(),
            admins: none.clone(),
            ..ChannelRule::default()
        });
        assert_eq!(heard(&closed), [false; 4]);
        assert_eq!(closed.closed_channels().collect::<Vec<_>>(), ["c1"]);
        assert!(!closed.is_closed(), "direct conversations are open");
        let channel = posted(Place::Channel, "x", &[]).id.channel;
        assert_eq!(closed.admins(&channel), Some(&[][..]));
        assert_eq!(inherits.admins(&channel), Some(&words(&["boss"])[..]));
        access.audience.admins.clear();
        assert_eq!(access.admins(&channel), None);
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
