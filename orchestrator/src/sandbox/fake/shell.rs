//! A small subset of `sh`, so that scripts of the simulation also run in a real sandbox.
//!
//! Commands: `echo printf cat rm mkdir mv ls pwd cd sleep true false exit`. Between them `;`, a
//! newline, `&&`, `||` and `&` (left behind, so nothing of it is seen). Redirections `> FILE`,
//! `>> FILE`, `>&2`. Quotes `'…'` and `"…"`. No variables, no pipes. Of `/proc` there is `uptime`.

use std::time::Duration;

/// How a command follows the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// Always.
    Any,
    /// Only if that one succeeded.
    Success,
    /// Only if that one failed.
    Failure,
}

/// Where standard output goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Stdout,
    Stderr,
    Write(String),
    Append(String),
}

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) after: After,
    pub(super) words: Vec<String>,
    pub(super) target: Target,
    pub(super) left_behind: bool,
}

/// Names that can be started.
pub(super) const KNOWN: [&str; 14] = [
    "sh", "bash", "echo", "printf", "cat", "rm", "mkdir", "mv", "ls", "pwd", "cd", "sleep", "true",
    "false",
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Operator(&'static str),
}

/// Longest first, so that none hides another.
const OPERATORS: [&str; 10] = [">&2", "1>&2", "&&", "||", ">>", ">", "&", ";", "\n", "|"];

pub(super) fn parse(script: &str) -> Result<Vec<Command>, String> {
    let mut commands = Vec::new();
    let mut after = After::Any;
    let mut command = fresh(after);
    let mut tokens = tokens(script)?.into_iter();
    loop {
        let token = tokens.next();
        let operator = match &token {
            Some(Token::Word(word)) => {
                command.words.push(word.clone());
                continue;
            }
            Some(Token::Operator(operator)) => operator,
            None => ";",
        };
        match operator {
            ">&2" | "1>&2" => command.target = Target::Stderr,
            ">" | ">>" => {
                let Some(Token::Word(file)) = tokens.next() else {
                    return Err(format!("sh: syntax error: a file name after {operator}"));
                };
                command.target = match operator {
                    ">" => Target::Write(file),
                    _ => Target::Append(file),
                };
            }
            "|" => return Err("sh: pipes are not simulated".to_owned()),
            between => {
                command.left_behind = between == "&";
                after = match between {
                    "&&" => After::Success,
                    "||" => After::Failure,
                    _ => After::Any,
                };
                let done = std::mem::replace(&mut command, fresh(after));
                if !done.words.is_empty() {
                    commands.push(done);
                }
            }
        }
        if token.is_none() {
            return Ok(commands);
        }
    }
}

fn fresh(after: After) -> Command {
    Command {
        after,
        words: Vec::new(),
        target: Target::Stdout,
        left_behind: false,
    }
}

fn tokens(script: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = script;
    while let Some(first) = rest.chars().next() {
        let starts = word.is_none() || !rest.starts_with('1');
        let operator = OPERATORS
            .iter()
            .find(|one| starts && rest.starts_with(**one));
        if let Some(operator) = operator {
            found.extend(word.take().map(Token::Word));
            found.push(Token::Operator(operator));
            rest = &rest[operator.len()..];
        } else if first.is_whitespace() {
            found.extend(word.take().map(Token::Word));
            rest = &rest[first.len_utf8()..];
        } else if first == '#' && word.is_none() {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        } else if first == '\'' || first == '"' {
            let Some((quoted, after)) = rest[1..].split_once(first) else {
                return Err("sh: syntax error: unterminated quoted string".to_owned());
            };
            word.get_or_insert_default().push_str(quoted);
            rest = after;
        } else {
            word.get_or_insert_default().push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    found.extend(word.map(Token::Word));
    Ok(found)
}

/// The time of `sleep`, seconds with fractions.
pub(super) fn duration(words: &[String]) -> Result<Duration, String> {
    let text = words.get(1).map_or("", String::as_str);
    let seconds = text.parse::<f64>().ok().filter(|number| *number >= 0.0);
    seconds
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .ok_or_else(|| format!("sleep: invalid number '{text}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> Vec<String> {
        let commands = parse(script).unwrap();
        commands.iter().map(|one| one.words.join("|")).collect()
    }

    #[test]
    fn scripts_are_cut_as_sh_cuts_them() {
        assert_eq!(
            words("echo a; echo 'b  c' \"d\"e\n\n# no\ntrue"),
            ["echo|a", "echo|b  c|de", "true"]
        );
        assert_eq!(words("echo 1 >&2; >&2 echo 11"), ["echo|1", "echo|11"]);
        assert_eq!(words("echo a>f"), ["echo|a"]);
    }

    #[test]
    fn targets_and_order_are_kept() {
        let commands = parse("echo a >> f && cat f || exit 2; sleep 9 & echo b 1>&2").unwrap();
        assert_eq!(commands[0].target, Target::Append("f".into()));
        let after: Vec<After> = commands.iter().map(|one| one.after).collect();
        let wanted = [
            After::Any,
            After::Success,
            After::Failure,
            After::Any,
            After::Any,
        ];
        assert_eq!(after, wanted);
        assert!(commands[3].left_behind && !commands[4].left_behind);
        assert_eq!(commands[4].target, Target::Stderr);
    }

    #[test]
    fn what_is_not_simulated_is_said() {
        assert!(parse("a | b").unwrap_err().contains("pipes"));
        assert!(parse("echo >").is_err() && parse("echo 'x").is_err());
    }
}
