//! Interactions wait three seconds for a word. It is given when the inbox has them.

use std::time::Duration;

use mayfly_domain::chat::CallError;
use reqwest::Method;
use serde_json::{Value, json};
use serenity::all::{ApplicationId, InteractionId, Route};
use tokio::time::{Instant, timeout_at};

use super::{
    Discord,
    api::{Ask, Error},
    content, refusal,
    thread::number,
};
use crate::json::{id, number as integer, text};

/// How long it is tried. Discord takes it for three seconds and then says that it is too late.
const DEADLINE: Duration = Duration::from_secs(10);
/// One try.
const TRY: Duration = Duration::from_millis(2500);
/// Only the person who pressed or typed sees it.
const EPHEMERAL: u32 = 64;

/// What is said back to an interaction.
enum Word {
    /// The button stops to spin.
    Seen,
    /// A command: its answer comes as a post, this only says so.
    Command(String),
    /// A form's field that asks for proposals: there are none.
    NoProposals,
}

fn word(data: &Value) -> Option<Word> {
    match integer(data, &["type"])? {
        3 | 5 => Some(Word::Seen),
        2 => Some(Word::Command(text(data, &["data", "name"])?.to_owned())),
        4 => Some(Word::NoProposals),
        _ => None,
    }
}

impl Discord {
    /// Says that an interaction arrived; gives up when it is too late.
    pub(crate) async fn acknowledge(&self, data: Value) {
        let deadline = Instant::now() + DEADLINE;
        let (Some(word), Some(interaction), Some(token)) =
            (word(&data), id(&data, &["id"]), text(&data, &["token"]))
        else {
            return;
        };
        let body = match &word {
            Word::Seen => json!({"type": 6}),
            Word::Command(_) => json!({"type": 5, "data": {"flags": EPHEMERAL}}),
            Word::NoProposals => json!({"type": 8, "data": {"choices": []}}),
        };
        let Ok(interaction) = number(&interaction) else {
            return;
        };
        let said = timeout_at(
            deadline,
            self.call_back(InteractionId::new(interaction), token, &body),
        )
        .await;
        match said {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return tracing::warn!(%error, "an interaction was not acknowledged"),
            Err(_) => return tracing::warn!("an interaction was not acknowledged in time"),
        }
        if let (Word::Command(name), Some(application)) = (word, id(&data, &["application_id"])) {
            self.resolve(&application, token, &name).await;
        }
    }

    /// Tries until it is done or refused; whoever calls sets an end.
    async fn call_back(
        &self,
        interaction_id: InteractionId,
        token: &str,
        body: &Value,
    ) -> Result<(), CallError> {
        loop {
            let route = Route::InteractionResponse {
                interaction_id,
                token,
            };
            let ask = Ask::new(Method::POST, route)
                .body(body.clone())
                .patience(TRY);
            match self.api.call(ask).await {
                Ok(_) => return Ok(()),
                Err(error) if error.is(refusal::ACKNOWLEDGED) => return Ok(()),
                Err(Error::Call(CallError::NotDone(_) | CallError::Unknown(_))) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error.told("")),
            }
        }
    }

    /// Ends the "thinking" under a command.
    async fn resolve(&self, application: &str, token: &str, name: &str) {
        let Ok(application) = number(application) else {
            return;
        };
        let route = Route::WebhookOriginalInteractionResponse {
            application_id: ApplicationId::new(application),
            token,
        };
        let said = content::literal(&format!(
            "/{name}: received, the answer follows in this conversation."
        ));
        let body = json!({"content": said, "allowed_mentions": content::nobody()});
        if let Err(error) = self
            .api
            .call(Ask::new(Method::PATCH, route).body(body))
            .await
        {
            let error = error.told("");
            tracing::warn!(%error, "a command was acknowledged and shows no word");
        }
    }

    /// Tells the person who pressed a button something that nobody else sees. `answer_to` is the
    /// interaction's id and token.
    pub(crate) async fn whisper(&self, answer_to: &str, said: &str) -> Result<(), CallError> {
        let (interaction, token) = answer_to
            .split_once(' ')
            .ok_or_else(|| CallError::Gone("the button can no longer be answered".to_owned()))?;
        if said.trim().is_empty() {
            return Ok(());
        }
        let data = json!({"content": content::literal(said), "flags": EPHEMERAL, "allowed_mentions": content::nobody()});
        match self.follow_up(token, &data).await {
            // It was not acknowledged: an answer can be the acknowledgement.
            Err(error) if error.is(refusal::UNKNOWN_WEBHOOK) => {
                let interaction_id = InteractionId::new(number(interaction)?);
                let route = Route::InteractionResponse {
                    interaction_id,
                    token,
                };
                let ask = Ask::new(Method::POST, route).body(json!({"type": 4, "data": data}));
                match self.api.call(ask).await {
                    Err(error) if error.is(refusal::ACKNOWLEDGED) => {
                        self.follow_up(token, &data).await
                    }
                    other => other.map(drop),
                }
            }
            other => other,
        }
        .map_err(|error| error.told(""))
    }

    async fn follow_up(&self, token: &str, data: &Value) -> Result<(), Error> {
        let me = self.me().await.map_err(Error::Call)?;
        let application_id = ApplicationId::new(number(&me.application).map_err(Error::Call)?);
        let route = Route::WebhookFollowupMessages {
            application_id,
            token,
        };
        self.api
            .call(Ask::new(Method::POST, route).body(data.clone()))
            .await
            .map(drop)
    }
}
