//! Proves that a slot is this tick's overlay and not a plain folder whose content would be lost.

use mayfly_init::exit::Code;

/// Checks every promised slot against the text of `/proc/self/mountinfo`.
pub(crate) fn check(mountinfo: &str, slots: &[(String, String)]) -> Result<(), (Code, String)> {
    for (folder, upper) in slots {
        // A later line at the same folder hides the earlier ones.
        let Some(mount) = mountinfo
            .lines()
            .filter_map(parse)
            .rfind(|mount| mount.at == *folder)
        else {
            return Err((Code::SlotMissing, format!("nothing is mounted at {folder}")));
        };
        if mount.kind != "overlay" || mount.root != "/" {
            let found = format!("{} {} is mounted at {folder}", mount.kind, mount.root);
            return Err((Code::SlotNotOverlay, found));
        }
        let uppers: Vec<String> = mount
            .options
            .split(',')
            .filter_map(|option| option.strip_prefix("upperdir="))
            .map(unescape)
            .collect();
        if uppers != [upper.as_str()] {
            let found = format!("{folder} has upperdir {uppers:?}, promised is {upper}");
            return Err((Code::SlotUpper, found));
        }
    }
    Ok(())
}

struct Mount<'a> {
    root: String,
    at: String,
    kind: &'a str,
    options: &'a str,
}

/// One line, see proc_pid_mountinfo(5): `36 35 98:0 /root /at rw shared:1 - kind source options`.
fn parse(line: &str) -> Option<Mount<'_>> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, at) = (unescape(before.next()?), unescape(before.next()?));
    let mut after = after.split(' ');
    let (kind, _source, options) = (after.next()?, after.next()?, after.next()?);
    Some(Mount {
        root,
        at,
        kind,
        options,
    })
}

/// Undoes the kernel's `\ooo` for space, tab, newline, comma, backslash and the like.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .first_chunk::<3>()
            .filter(|_| first == b'\\')
            .and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
21 1 0:19 / / ro,relatime - overlay overlay rw,lowerdir=/l,upperdir=/root-upper,workdir=/w
30 21 0:40 / /work rw,nosuid master:7 - overlay overlay rw,lowerdir=/a:/b,upperdir=/d/l/x1/work,workdir=/d/w
31 21 0:41 / /plain rw - ext4 /dev/sda1 rw
32 21 0:42 / /my\\040home rw - overlay o rw,upperdir=/a\\054b\\134c\\040d,workdir=/w
33 21 0:43 /sub /part rw - overlay o rw,upperdir=/u
34 21 0:44 / /covered rw - overlay o rw,upperdir=/u
35 21 0:45 / /covered rw - tmpfs t rw
36 21 0:46 / /lower rw - overlay o ro,lowerdir=/a:/b
";

    fn code(folder: &str, upper: &str) -> Option<Code> {
        check(TEXT, &[(folder.into(), upper.into())])
            .err()
            .map(|(code, _)| code)
    }

    #[test]
    fn only_the_promised_overlay_passes() {
        assert_eq!(code("/work", "/d/l/x1/work"), None);
        assert_eq!(code("/my home", "/a,b\\c d"), None);
        assert_eq!(code("/work", "/d/l/x2/work"), Some(Code::SlotUpper));
        assert_eq!(code("/work", "/d/l/x1"), Some(Code::SlotUpper));
        assert_eq!(code("/lower", "/u"), Some(Code::SlotUpper));
        assert_eq!(code("/plain", "/u"), Some(Code::SlotNotOverlay));
        assert_eq!(code("/part", "/u"), Some(Code::SlotNotOverlay));
        assert_eq!(code("/covered", "/u"), Some(Code::SlotNotOverlay));
        assert_eq!(code("/absent", "/u"), Some(Code::SlotMissing));
        assert_eq!(code("/wor", "/u"), Some(Code::SlotMissing));
    }
}
