//! Files that come with a message, and what files may be called, whoever named them.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::BlobHash;

/// Most bytes in a file's name: with a suffix it still fits every file system.
const MAX_NAME: usize = 200;
/// Longest ending that is kept when a name is cut.
const MAX_ENDING: usize = 20;
/// What a file is called whose name says nothing.
const NAMELESS: &str = "file";

/// A file on its way in; its content is in the blob store already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewFile {
    /// As its author calls it; see [`file_names`].
    pub name: String,
    /// Where its content is.
    pub blob: BlobHash,
}

/// A file of an accepted message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attachment {
    /// Its name in the agent's `received` folder.
    pub name: String,
    /// Where its content is.
    pub blob: BlobHash,
    /// Bytes.
    pub size: u64,
}

/// What people may attach, on every platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttachmentLimits {
    /// Most files with one message.
    pub files: usize,
    /// Mebibytes of the largest single file.
    pub file_mib: u64,
    /// Mebibytes of all files of one message.
    pub message_mib: u64,
}

impl Default for AttachmentLimits {
    fn default() -> Self {
        AttachmentLimits {
            files: 10,
            file_mib: 100,
            message_mib: 250,
        }
    }
}

/// Why files cannot come with a message. Each says the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttachmentError {
    /// Past [`AttachmentLimits::files`].
    #[error(
        "the message has {count} files, at most {most} fit: pack them into one, or send several messages"
    )]
    TooMany {
        /// Files.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// Past [`AttachmentLimits::file_mib`].
    #[error(
        "the file \"{name}\" has more than {most_mib} MiB, which is the most that fits: send less, or raise {limit}"
    )]
    TooLarge {
        /// Its name.
        name: String,
        /// The limit.
        most_mib: u64,
        /// Where the limit is set.
        limit: &'static str,
    },
    /// The same, where the file has no name yet.
    #[error(
        "the file has more than {most_mib} MiB, which is the most that fits: send less, or raise attachments.file_mib"
    )]
    UploadTooLarge {
        /// The limit.
        most_mib: u64,
    },
    /// Past [`AttachmentLimits::message_mib`], or what the agent may keep.
    #[error(
        "the message's files have {bytes} bytes together, at most {most_mib} MiB fit: send several messages, or raise {limit}"
    )]
    TooMuch {
        /// Their sum.
        bytes: u64,
        /// The limit.
        most_mib: u64,
        /// Where the limit is set.
        limit: &'static str,
    },
    /// Nothing with this hash was uploaded, or too long ago.
    #[error(
        "no uploaded file has the hash {0}: upload it first, and name it in a message within a day"
    )]
    Unknown(BlobHash),
}

impl AttachmentLimits {
    /// Bytes of the largest single file.
    pub fn file_bytes(&self) -> u64 {
        self.file_mib << 20
    }

    /// Judges a file before its content is taken.
    pub fn check_file(&self, name: &str, bytes: u64) -> Result<(), AttachmentError> {
        match bytes > self.file_bytes() {
            true => Err(AttachmentError::TooLarge {
                name: clean(name),
                most_mib: self.file_mib,
                limit: "attachments.file_mib",
            }),
            false => Ok(()),
        }
    }

    /// Judges how many files come with one message.
    pub fn check_count(&self, count: usize) -> Result<(), AttachmentError> {
        match count > self.files {
            true => Err(AttachmentError::TooMany {
                count,
                most: self.files,
            }),
            false => Ok(()),
        }
    }

    /// Judges all files of one message by their real sizes.
    pub fn check(&self, files: &[Attachment]) -> Result<(), AttachmentError> {
        self.check_count(files.len())?;
        for file in files {
            self.check_file(&file.name, file.size)?;
        }
        let bytes = files.iter().map(|file| file.size).sum();
        match bytes > self.message_mib << 20 {
            true => Err(AttachmentError::TooMuch {
                bytes,
                most_mib: self.message_mib,
                limit: "attachments.message_mib",
            }),
            false => Ok(()),
        }
    }
}

/// Names under which files can lie side by side in one folder, in the order given. Only the last
/// part of a path is kept, nothing that does not show or leads out of the folder, and no name twice.
pub fn file_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let unused = |name: &str| {
        let name = free_name(&clean(name), |name| taken.contains(name));
        taken.insert(name.clone());
        name
    };
    names.into_iter().map(unused).collect()
}

/// A name that is not taken: `a.txt`, else `a-2.txt`, `a-3.txt` and so on.
pub fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    let (stem, ending) = split(name);
    let numbered = (2u64..).map(|n| format!("{stem}-{n}{ending}"));
    std::iter::once(name.to_owned())
        .chain(numbered)
        .find(|name| !taken(name))
        .expect("numbers do not end")
}

fn clean(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let shown: String = last.chars().filter(|c| !is_hidden(*c)).collect();
    let shown = shown.trim();
    if shown.chars().all(|c| c == '.') {
        return NAMELESS.to_owned();
    }
    // `cat *` must not take a name for an option.
    let (dash, shown) = match shown.strip_prefix('-') {
        Some(rest) => ("_", rest),
        None => ("", shown),
    };
    let (stem, ending) = split(shown);
    let room = MAX_NAME - ending.len() - dash.len();
    let mut cut = stem.len().min(room);
    while !stem.is_char_boundary(cut) {
        cut -= 1;
    }
    format!("{dash}{}{ending}", &stem[..cut])
}

/// Stem and ending with its dot; a name that begins with its only dot has no ending, nor has one
/// with a very long one.
fn split(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(at) if at > 0 && name.len() - at <= MAX_ENDING => name.split_at(at),
        _ => (name, ""),
    }
}

/// Controls, what changes the order in which a name is shown, and what nobody sees.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{180e}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str) -> String {
        file_names([name]).remove(0)
    }

    #[test]
    fn a_name_leads_nowhere_and_shows_what_it_is() {
        for (given, kept) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\ada\\a b.txt", "a b.txt"),
            ("/", "file"),
            ("", "file"),
            ("..", "file"),
            ("a/..", "file"),
            (" . ", "file"),
            ("a\0b\n\u{1b}[2Jc", "ab[2Jc"),
            ("gpj.\u{202e}exe", "gpj.exe"),
            (".bashrc", ".bashrc"),
            ("-rf", "_rf"),
            ("-", "_"),
            ("größe.täxt", "größe.täxt"),
        ] {
            assert_eq!(one(given), kept, "{given:?}");
        }
    }

    #[test]
    fn a_long_name_keeps_its_ending() {
        let long = one(&format!("{}.tar", "ü".repeat(500)));
        assert!(long.len() <= MAX_NAME && long.ends_with("ü.tar"), "{long}");
        let no_ending = one(&format!("a.{}", "b".repeat(500)));
        assert_eq!(no_ending.len(), MAX_NAME);
    }

    #[test]
    fn names_that_are_taken_get_a_number() {
        let names = [
            "a.txt", "x/a.txt", "a-2.txt", "a.txt", ".env", ".env", "", "",
        ];
        assert_eq!(
            file_names(names),
            [
                "a.txt",
                "a-2.txt",
                "a-2-2.txt",
                "a-3.txt",
                ".env",
                ".env-2",
                "file",
                "file-2"
            ]
        );
        let many = file_names(std::iter::repeat_n("a", 1000));
        assert_eq!(many.iter().collect::<HashSet<_>>().len(), 1000);
    }

    #[test]
    fn every_cap_is_told_with_its_setting() {
        let limits = AttachmentLimits {
            files: 2,
            file_mib: 1,
            message_mib: 1,
        };
        let file = |size| Attachment {
            name: "a".into(),
            blob: "0".repeat(64).parse().unwrap(),
            size,
        };
        let told = |files: &[Attachment]| limits.check(files).unwrap_err().to_string();
        assert!(limits.check(&[file(1 << 20)]).is_ok());
        assert!(told(&[file(1), file(1), file(1)]).contains("3 files, at most 2"));
        assert!(told(&[file((1 << 20) + 1)]).contains("attachments.file_mib"));
        assert!(told(&[file(1 << 20), file(1)]).contains("attachments.message_mib"));
    }
}
