//! What Slack's error codes mean for a person, with the way out.

use mayfly_domain::chat::CallError;

use crate::http::{answer::Failure, call};

/// The code of a refusal; `missing_scope` without the scope.
pub(super) fn code(failure: &Failure) -> Option<&str> {
    match failure {
        Failure::Permanent { reason } => reason.split(':').next(),
        _ => None,
    }
}

/// For the outbox.
pub(super) fn told(failure: Failure) -> CallError {
    match code(&failure) {
        Some("message_not_found") => {
            CallError::Gone("Slack has no such message any more".to_owned())
        }
        _ => call::told(failure, way_out),
    }
}

/// A sentence of any failure.
pub(super) fn sentence(failure: Failure) -> String {
    match failure {
        Failure::Permanent { reason } => way_out(&reason),
        other => other.to_string(),
    }
}

/// `missing_scope: the scope files:read is missing`
fn scope(said: &str) -> Option<&str> {
    said.strip_prefix("missing_scope: the scope ")?
        .strip_suffix(" is missing")
}

/// What Slack said, as a sentence with the way out.
pub(super) fn way_out(said: &str) -> String {
    if let Some(scope) = scope(said) {
        return format!(
            "the Slack app lacks the scope {scope} (missing_scope): add it under \"OAuth & \
             Permissions\" and install the app again"
        );
    }
    let out = match said {
        "channel_not_found" => {
            "Slack shows the bot no such channel: invite it there with /invite, or the channel was deleted"
        }
        "not_in_channel" => "the bot is not in the channel: invite it with /invite",
        "is_archived" => "the channel is archived: unarchive it",
        "thread_not_found" | "invalid_thread_ts" => {
            "the thread is not there any more: write to the bot in a new one"
        }
        "account_inactive" | "token_revoked" | "user_removed_from_team" => {
            "the app was removed from the workspace: install it again and set SLACK_BOT_TOKEN"
        }
        "invalid_auth" | "not_authed" | "token_expired" => {
            "Slack does not accept the token: copy it again from the app's settings"
        }
        "not_allowed_token_type" => {
            "this is a token of another kind: SLACK_BOT_TOKEN begins with xoxb-, SLACK_APP_TOKEN with xapp-"
        }
        "missing_scope" => {
            "the Slack app lacks a scope: compare its scopes with `mayfly platform slack manifest`"
        }
        "restricted_action"
        | "restricted_action_read_only_channel"
        | "restricted_action_thread_only_channel"
        | "restricted_action_thread_locked" => {
            "the workspace lets the bot not write there: ask its owners"
        }
        "cant_update_message" | "edit_window_closed" => {
            "Slack does not let the message be changed any more: its text stays as it is"
        }
        "cant_delete_message" => "Slack does not let the message be deleted: delete it by hand",
        "msg_too_long" | "msg_blocks_too_long" | "markdown_text_too_long" => {
            "the text is longer than Slack takes"
        }
        "invalid_blocks" => "Slack does not take the form of the message",
        "ekm_access_denied" | "access_denied" | "no_permission" | "team_access_not_granted" => {
            "the workspace forbids it: ask its owners"
        }
        "file_not_found" | "file_deleted" => "Slack has no such file any more: send it again",
        "storage_limit_reached" => "the workspace has no room for files left",
        "link_disabled" => {
            "Socket Mode is switched off: switch it on in the app's settings, then restart"
        }
        "team_added_to_org" | "org_login_required" => {
            "the workspace is being moved: install the app again when that is done"
        }
        other => return format!("Slack refuses with \"{other}\""),
    };
    format!("{out} ({said})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cf_02_a_missing_scope_is_named() {
        let reason = "missing_scope: the scope files:write is missing".to_owned();
        let told = told(Failure::Permanent { reason }).to_string();
        assert!(told.contains("the scope files:write"), "{told}");
        assert!(told.contains("install the app again"), "{told}");
    }

    #[test]
    fn fm_08_a_place_that_is_gone_is_a_sentence_with_the_way_out() {
        for code in [
            "channel_not_found",
            "is_archived",
            "not_in_channel",
            "account_inactive",
        ] {
            let said = way_out(code);
            assert!(
                said.contains(": ") && said.ends_with(&format!("({code})")),
                "{said}"
            );
        }
        assert_eq!(way_out("new_one"), "Slack refuses with \"new_one\"");
    }
}
