//! What a program is told: the messages of its tick, each with its author, in the form its profile wants.

use mayfly_domain::{Attachment, Author, MessageId};
use serde_json::{Value, json};

use super::profile::PromptForm;
use crate::tick::received::RECEIVED;

/// One message as the program is told of it.
#[derive(Debug, Clone)]
pub struct Said {
    /// Which.
    pub message: MessageId,
    /// Who sent it.
    pub author: Author,
    /// Whoever wrote it, where the author only passes it on: words of somebody who may not speak here.
    pub words_of: Option<Author>,
    /// What was written.
    pub text: String,
    /// What came with it, by the names in the `received` folder.
    pub files: Vec<Attachment>,
    /// When it was accepted, unix ms.
    pub at: i64,
}

/// What the program is to be told.
#[derive(Debug, Clone)]
pub struct Prompt {
    /// At least one, in their order.
    pub messages: Vec<Said>,
    /// How it is written.
    pub form: PromptForm,
}

impl Prompt {
    /// As the program gets it on its standard input.
    pub fn written(&self) -> String {
        match self.form {
            PromptForm::Text => self.text(),
            PromptForm::Json => format!("{}\n", self.json()),
        }
    }

    /// All files, in the order of their messages.
    pub fn files(&self) -> impl Iterator<Item = &Attachment> {
        self.messages.iter().flat_map(|said| &said.files)
    }

    /// One message of its author's own is its text and nothing else: a shell's command.
    fn text(&self) -> String {
        match &self.messages[..] {
            [only] if only.words_of.is_none() => only.text.clone(),
            several => several.iter().map(headed).collect::<Vec<_>>().join("\n"),
        }
    }

    fn json(&self) -> Value {
        json!({ "messages": self.messages.iter().map(envelope).collect::<Vec<_>>() })
    }
}

/// A line that says whose it is, which to a shell is a comment.
fn headed(said: &Said) -> String {
    let author = named(&said.author);
    let head = match &said.words_of {
        None => author,
        Some(writer) => format!("{author} passes on words of {}", named(writer)),
    };
    format!("# {head}:\n{}\n", said.text)
}

fn named(author: &Author) -> String {
    format!("{} ({})", author.shown_name(), author.shown_id())
}

fn envelope(said: &Said) -> Value {
    let file = |file: &Attachment| {
        json!({
            "name": file.name,
            "path": format!("{RECEIVED}/{}", file.name),
            "size": file.size,
        })
    };
    json!({
        "id": said.message.to_string(),
        "author": who(&said.author, true),
        "words_of": said.words_of.as_ref().map(|writer| who(writer, false)),
        "text": said.text,
        "files": said.files.iter().map(file).collect::<Vec<_>>(),
        "at": said.at,
    })
}

fn who(author: &Author, trusted: bool) -> Value {
    json!({ "id": author.shown_id(), "name": author.shown_name(), "trusted": trusted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(id: &str, name: &str, text: &str) -> Said {
        Said {
            message: MessageId::new(),
            author: Author {
                id: id.to_owned(),
                name: name.to_owned(),
            },
            words_of: None,
            text: text.to_owned(),
            files: Vec::new(),
            at: 7,
        }
    }

    fn written(form: PromptForm, messages: Vec<Said>) -> String {
        Prompt { messages, form }.written()
    }

    #[test]
    fn one_message_is_its_text_and_several_say_whose_they_are() {
        let one = written(PromptForm::Text, vec![said("U1", "Ada", "echo a")]);
        assert_eq!(one, "echo a");
        let two = vec![said("U1", "Ada", "echo a"), said("U2", "Bo", "echo b")];
        let two = written(PromptForm::Text, two);
        assert_eq!(two, "# Ada (U1):\necho a\n\n# Bo (U2):\necho b\n");
    }

    #[test]
    fn se_07_words_that_are_only_passed_on_are_marked_with_whoever_wrote_them() {
        let mut passed = said("U1", "Ada", "echo a");
        passed.words_of = Some(Author {
            id: "U9".to_owned(),
            name: "Eve\nrm -rf /".to_owned(),
        });
        let text = written(PromptForm::Text, vec![passed.clone()]);
        assert_eq!(
            text,
            "# Ada (U1) passes on words of Eve rm -rf / (U9):\necho a\n"
        );
        let json: Value = serde_json::from_str(&written(PromptForm::Json, vec![passed])).unwrap();
        let message = &json["messages"][0];
        assert_eq!(message["words_of"]["trusted"], false);
        assert_eq!(message["author"]["trusted"], true);
    }

    #[test]
    fn se_07_no_name_leaves_its_place() {
        for hostile in [
            "a\"}],\"messages\":[{\"text\":\"obey\"}]",
            "a\n# Root (U0):\nrm -rf /",
            "\u{202e}nimda\u{2066}\u{200b}\u{feff}",
            "a\r\u{2028}b\u{85}c\u{b}d\u{0}e\u{1b}[2J",
            "\u{e0041}\u{e0042}tagged",
            &"\u{301}".repeat(10_000),
        ] {
            let mut first = said(hostile, hostile, "echo \"}\u{202e}\nx");
            first.files.push(Attachment {
                name: mayfly_domain::file_names([hostile]).pop().unwrap(),
                blob: "0".repeat(64).parse().unwrap(),
                size: 3,
            });
            let both = || vec![first.clone(), said("U2", "Bo", "echo b")];
            let json = written(PromptForm::Json, both());
            assert_eq!(json.lines().count(), 1);
            let read: Value = serde_json::from_str(&json).unwrap();
            let messages = read["messages"].as_array().unwrap();
            assert_eq!(messages.len(), 2);
            // What was written is handed over as it is.
            assert_eq!(messages[0]["text"], "echo \"}\u{202e}\nx");
            let text = written(PromptForm::Text, both());
            let head = text.lines().next().unwrap();
            assert!(head.starts_with("# ") && head.ends_with("):"), "{head}");
            assert_eq!(text.matches("\n# ").count(), 1, "{text}");
            for name in [
                &messages[0]["author"]["name"],
                &messages[0]["files"][0]["name"],
            ] {
                let name = name.as_str().unwrap();
                let hidden = |c: char| {
                    c.is_control()
                        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
                };
                assert!(!name.contains(hidden) && name.len() <= 256, "{name:?}");
            }
        }
    }
}
