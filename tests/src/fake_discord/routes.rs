//! What the calls are named in faults and log.

use hyper::Method;

/// Parts of a path below the API's root, without its version.
pub(super) fn parts(path: &str) -> Vec<&str> {
    let below = path.strip_prefix("/api").unwrap_or(path);
    let parts: Vec<&str> = below.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [version, rest @ ..] if version.starts_with('v') && version[1..].parse::<u8>().is_ok() => {
            rest.to_vec()
        }
        _ => parts,
    }
}

/// The name of a call.
pub(super) fn name(method: &Method, path: &str) -> &'static str {
    let parts = parts(path);
    match (method.as_str(), parts.as_slice()) {
        (_, ["cdn", ..]) => "file",
        ("GET", ["users", "@me"]) => "me",
        ("GET", ["oauth2", "applications", "@me"] | ["applications", "@me"]) => "application",
        ("GET", ["gateway", ..]) => "gateway",
        ("PUT", ["applications", _, "commands"]) => "commands",
        ("GET", ["guilds", _, "members", _]) => "member",
        ("GET", ["channels", _]) => "channel",
        ("PATCH", ["channels", _]) => "wake",
        ("POST", ["channels", _, "messages"]) => "post",
        ("GET", ["channels", _, "messages"]) => "messages",
        ("GET", ["channels", _, "messages", _]) => "message",
        ("PATCH", ["channels", _, "messages", _]) => "edit",
        ("DELETE", ["channels", _, "messages", _]) => "delete",
        ("POST", ["channels", _, "messages", _, "threads"]) => "thread",
        ("PUT", ["channels", _, "messages", _, "reactions", _, "@me"]) => "react",
        ("DELETE", ["channels", _, "messages", _, "reactions", _, "@me"]) => "unreact",
        ("POST", ["channels", _, "typing"]) => "typing",
        ("POST", ["interactions", _, _, "callback"]) => "callback",
        ("POST", ["webhooks", _, _]) => "follow-up",
        ("PATCH", ["webhooks", _, _, "messages", "@original" | "%40original"]) => "original",
        _ => "unknown",
    }
}
