//! Who the agent is in an image: its `USER`, looked up in the image's own passwd and group, and
//! never root.

/// The agent, with what people should know about the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) notes: Vec<String>,
}

const ORDINARY: u32 = 1000;

/// `USER` is `user[:group]`, each a name or a number. Empty or root means 1000:1000; a group that
/// is missing, unknown or root is the user's number. An unknown name is an error.
pub(super) fn identity(user: &str, passwd: &str, group: &str) -> Result<Identity, String> {
    let (name, group_name) = match user.split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (user, None),
    };
    let line = lines(passwd).find(|fields| fields[0] == name || fields[2] == name);
    let uid = match name.parse::<u32>() {
        _ if name.is_empty() => 0,
        Ok(number) => number,
        Err(_) => match line.as_ref().and_then(|fields| fields[2].parse().ok()) {
            Some(number) => number,
            None => return Err(format!("its USER {name} is not in its /etc/passwd")),
        },
    };
    let mut notes = Vec::new();
    if uid == 0 || uid == u32::MAX {
        if !name.is_empty() {
            notes.push(format!(
                "the image's USER {user} is root, the agent is {ORDINARY}"
            ));
        }
        return Ok(Identity {
            uid: ORDINARY,
            gid: ORDINARY,
            notes,
        });
    }
    let gid = match group_name.filter(|name| !name.is_empty()) {
        Some(name) => match name.parse::<u32>() {
            Ok(number) => Some(number),
            Err(_) => match lines(group).find(|fields| fields[0] == name) {
                Some(fields) => fields[2].parse().ok(),
                None => {
                    return Err(format!(
                        "its USER names group {name}, not in its /etc/group"
                    ));
                }
            },
        },
        None => line.and_then(|fields| fields.get(3)?.parse().ok()),
    };
    let gid = match gid {
        Some(gid) if gid != 0 && gid != u32::MAX => gid,
        Some(_) => {
            notes.push(format!(
                "the group of the image's USER is root's, the agent's is {uid}"
            ));
            uid
        }
        None => uid,
    };
    Ok(Identity { uid, gid, notes })
}

/// Adds the agent's lines to both files, where its numbers have none.
pub(super) fn with_agent(
    passwd: &str,
    group: &str,
    (uid, gid): (u32, u32),
    home: &str,
) -> (String, String) {
    let (mut passwd, mut group) = (ended(passwd), ended(group));
    if !lines(&passwd).any(|fields| fields[2].parse() == Ok(uid)) {
        let name = free_name(&passwd);
        passwd.push_str(&format!("{name}:x:{uid}:{gid}::{home}:/bin/sh\n"));
    }
    if !lines(&group).any(|fields| fields[2].parse() == Ok(gid)) {
        let name = free_name(&group);
        group.push_str(&format!("{name}:x:{gid}:\n"));
    }
    (passwd, group)
}

fn free_name(file: &str) -> &'static str {
    let taken = |name: &str| lines(file).any(|fields| fields[0] == name);
    if taken("agent") {
        "mayfly-agent"
    } else {
        "agent"
    }
}

fn ended(file: &str) -> String {
    match file {
        "" => String::new(),
        text if text.ends_with('\n') => text.to_owned(),
        text => format!("{text}\n"),
    }
}

fn lines(file: &str) -> impl Iterator<Item = Vec<&str>> {
    file.lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .filter(|fields| fields.len() >= 3 && !fields[0].is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnode:x:1001:1002::/home/node:/bin/sh";
    const GROUP: &str = "root:x:0:\nstaff:x:50:\n";

    fn ids(user: &str) -> Option<(u32, u32)> {
        identity(user, PASSWD, GROUP)
            .ok()
            .map(|found| (found.uid, found.gid))
    }

    #[test]
    fn the_agent_is_the_images_user_and_never_root() {
        for (user, wanted) in [
            ("", Some((1000, 1000))),
            ("0", Some((1000, 1000))),
            ("root", Some((1000, 1000))),
            ("root:staff", Some((1000, 1000))),
            ("node", Some((1001, 1002))),
            ("node:staff", Some((1001, 50))),
            ("1001", Some((1001, 1002))),
            ("7", Some((7, 7))),
            ("7:0", Some((7, 7))),
            ("7:8", Some((7, 8))),
            ("4294967295", Some((1000, 1000))),
            ("nobody-here", None),
            ("node:nogroup", None),
        ] {
            assert_eq!(ids(user), wanted, "{user}");
        }
    }

    #[test]
    fn lines_are_added_only_where_the_numbers_have_none() {
        let (passwd, group) = with_agent(PASSWD, GROUP, (1001, 50), "/home/agent");
        assert_eq!((passwd, group), (format!("{PASSWD}\n"), GROUP.to_owned()));
        let (passwd, group) = with_agent("agent:x:5:5::/:/x", "", (1000, 1000), "/h");
        assert!(
            passwd.ends_with("\nmayfly-agent:x:1000:1000::/h:/bin/sh\n"),
            "{passwd}"
        );
        assert_eq!(group, "agent:x:1000:\n");
    }
}
