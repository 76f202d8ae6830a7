//! The calls of Slack's Web API that are used, each judged; how long Slack wants silence is kept.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use reqwest::redirect;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use slack_morphism::{
    SlackApiToken, SlackApiTokenType, SlackClient,
    api::{SlackApiAppsConnectionOpenRequest, SlackApiAuthTestResponse},
};

use super::{
    config::{Config, Pace},
    connector::{Connector, Told, unwrapped},
};
use crate::{
    http::{answer::Failure, wait::Silence},
    secret::Secret,
};

/// See the module.
pub(super) struct Api {
    client: SlackClient<Connector>,
    bot: SlackApiToken,
    app: Option<SlackApiToken>,
    silence: Mutex<Silence>,
    began: Instant,
}

/// The parameters of a call that reads: name and value.
pub(super) type Query<'a> = Vec<(&'a str, Option<&'a str>)>;

impl Api {
    pub(super) fn new(config: &Config, pace: &Pace) -> Result<Api, String> {
        let http = reqwest::Client::builder()
            .timeout(pace.call)
            .connect_timeout(pace.call)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()
            .map_err(|error| format!("no HTTP client for Slack: {error}"))?;
        let api_url = config.api_url.trim_end_matches('/').to_owned();
        reqwest::Url::parse(&api_url)
            .map_err(|error| format!("Slack's api_url \"{api_url}\" is no address: {error}"))?;
        Ok(Api {
            client: SlackClient::new(Connector { http, api_url }),
            bot: token(&config.bot_token, SlackApiTokenType::Bot),
            app: config
                .app_token
                .as_ref()
                .map(|secret| token(secret, SlackApiTokenType::App)),
            silence: Mutex::default(),
            began: Instant::now(),
        })
    }

    /// The HTTP client of all calls.
    pub(super) fn http(&self) -> &reqwest::Client {
        &self.client.http_api.connector.http
    }

    /// Who we are: user and team of the bot token.
    pub(super) async fn auth_test(&self) -> Result<SlackApiAuthTestResponse, Failure> {
        self.held("auth.test", async {
            let session = self.client.open_session(&self.bot);
            session.auth_test().await.map_err(unwrapped)
        })
        .await
    }

    /// As [`Api::auth_test`], with the scopes the bot token has.
    pub(super) async fn scopes(&self) -> Result<Told, Failure> {
        let connector = &self.client.http_api.connector;
        let url = format!("{}/auth.test", connector.api_url);
        let request = connector
            .http
            .post(url)
            .bearer_auth(&self.bot.token_value.0);
        connector.send(request).await
    }

    /// An address to open a socket at, good once.
    pub(super) async fn connections_open(&self) -> Result<String, Failure> {
        let Some(app) = &self.app else {
            let reason = "not_authed".to_owned();
            return Err(Failure::Permanent { reason });
        };
        self.held("apps.connections.open", async {
            let session = self.client.open_session(app);
            let request = SlackApiAppsConnectionOpenRequest::new();
            let opened = session.apps_connections_open(&request).await;
            opened
                .map(|opened| opened.url.0.to_string())
                .map_err(unwrapped)
        })
        .await
    }

    /// A method that writes. `of` is the part of the bucket beside the method: a channel, or nothing.
    pub(super) async fn write<B: Serialize + Send + Sync>(
        &self,
        method: &str,
        of: &str,
        body: &B,
    ) -> Result<Value, Failure> {
        self.held(&format!("{method} {of}"), async {
            let session = self.client.open_session(&self.bot);
            let api = &session.http_session_api;
            api.http_post(method, body, None).await.map_err(unwrapped)
        })
        .await
    }

    /// A method that only reads.
    pub(super) async fn read<T: DeserializeOwned + Send>(
        &self,
        method: &str,
        query: &Query<'_>,
    ) -> Result<T, Failure> {
        self.held(method, async {
            let session = self.client.open_session(&self.bot);
            let api = &session.http_session_api;
            api.http_get(method, query, None).await.map_err(unwrapped)
        })
        .await
    }

    /// Calls, unless Slack asked for silence; hears whether it does now.
    async fn held<T>(
        &self,
        bucket: &str,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let left = self.silence().left(bucket, self.now());
        if !left.is_zero() {
            return Err(Failure::NotDone {
                why: "a wait that Slack asked for is not over".to_owned(),
                wait: Some(left),
            });
        }
        let done = call.await;
        if let Err(Failure::NotDone {
            wait: Some(wait), ..
        }) = &done
        {
            self.silence().hold(bucket, self.now(), *wait);
        }
        done
    }

    fn silence(&self) -> std::sync::MutexGuard<'_, Silence> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

fn token(secret: &Secret, kind: SlackApiTokenType) -> SlackApiToken {
    SlackApiToken::new(secret.expose().to_owned().into()).with_token_type(kind)
}
