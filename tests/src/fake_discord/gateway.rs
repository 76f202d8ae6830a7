//! The gateway: sessions with numbered events, resumed where they were left.

use std::{
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::select;
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};

use super::{
    BOT, FakeDiscord,
    state::{ANN, BEN, DIRECT, GUILD, Kept, Session, State, THREAD},
    token,
};
use crate::fake::socket::{Dialled, Socket};

/// Least time between identifies.
const PAUSE: Duration = Duration::from_secs(5);

/// What happens to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// The connection breaks.
    Cut,
    /// It is closed with this code.
    Close(u16),
    /// The client is asked to connect anew (op 7).
    Reconnect,
    /// The session is invalid (op 9), and whether it may be resumed.
    Invalid(bool),
    /// Nothing is read or written any more, and nothing is closed.
    Deaf,
    /// The same, right after the next beat is acknowledged.
    DeafAfterBeat,
    /// This comes as a frame.
    Raw(String),
}

pub(super) struct Gateway(pub(super) Arc<Kept>);

/// A session, and how many of its events were sent.
type At = Option<(String, usize)>;

impl Dialled for Gateway {
    async fn speak(self: Arc<Self>, mut socket: Socket, _path: String) {
        let mut orders = self.0.orders.subscribe();
        let mut changed = self.0.changed.subscribe();
        let beat = self.0.lock().beat;
        let hello = json!({"op": 10, "s": null, "t": null, "d": {"heartbeat_interval": beat}});
        if send(&mut socket, &hello).await.is_none() {
            return;
        }
        let (mut at, mut beats): (At, bool) = (None, true);
        loop {
            changed.mark_unchanged();
            for event in self.waiting(&mut at) {
                if send(&mut socket, &event).await.is_none() {
                    return;
                }
            }
            let order = select! {
                frame = socket.next() => match frame {
                    Some(Ok(Message::Text(text))) => match self.said(&text, &mut at) {
                        Ok(Some(answer)) => {
                            if send(&mut socket, &answer).await.is_none() {
                                return;
                            }
                            match beats {
                                true => continue,
                                false => Order::Deaf,
                            }
                        }
                        Ok(None) => continue,
                        Err(order) => order,
                    },
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => continue,
                },
                order = orders.recv() => match order {
                    Ok(order) => order,
                    Err(_) => return,
                },
                _ = changed.changed() => continue,
            };
            match order {
                Order::Deaf => self.0.lock().deaf += 1,
                Order::DeafAfterBeat => {
                    beats = false;
                    continue;
                }
                _ => {}
            }
            if follow(&mut socket, order).await.is_none() {
                return;
            }
        }
    }
}

/// None ends the connection.
async fn follow(socket: &mut Socket, order: Order) -> Option<()> {
    match order {
        Order::Cut => None,
        Order::Close(code) => {
            let frame = CloseFrame {
                code: CloseCode::from(code),
                reason: "".into(),
            };
            let _ = socket.close(Some(frame)).await;
            // The other side closes in its turn.
            while let Some(Ok(_)) = socket.next().await {}
            None
        }
        Order::Reconnect => send(socket, &json!({"op": 7, "d": null, "s": null, "t": null})).await,
        Order::Invalid(again) => {
            send(socket, &json!({"op": 9, "d": again, "s": null, "t": null})).await
        }
        Order::Deaf | Order::DeafAfterBeat => pending().await,
        Order::Raw(text) => socket.send(Message::text(text)).await.ok(),
    }
}

async fn send(socket: &mut Socket, value: &Value) -> Option<()> {
    socket.send(Message::text(value.to_string())).await.ok()
}

impl Gateway {
    /// Events that this connection has not sent.
    fn waiting(&self, at: &mut At) -> Vec<Value> {
        let Some((id, sent)) = at else {
            return Vec::new();
        };
        let state = self.0.lock();
        let Some(session) = state.sessions.get(id) else {
            return Vec::new();
        };
        let events = session.events.iter().enumerate().skip(*sent);
        let frames: Vec<Value> = events
            .map(|(n, (kind, data))| json!({"op": 0, "t": kind, "s": n + 1, "d": data}))
            .collect();
        *sent += frames.len();
        frames
    }

    /// What is answered to a frame, or what happens to the connection.
    fn said(&self, text: &str, at: &mut At) -> Result<Option<Value>, Order> {
        let frame: Value = serde_json::from_str(text).map_err(|_| Order::Close(4002))?;
        if text.len() > 4096 {
            return Err(Order::Close(4002));
        }
        let mut state = self.0.lock();
        match frame["op"].as_u64() {
            Some(1) => Ok(Some(json!({"op": 11, "d": null, "s": null, "t": null}))),
            Some(2) => {
                *at = Some((identify(&mut state, &frame["d"])?, 0));
                Ok(None)
            }
            Some(6) => {
                *at = Some(resume(&mut state, &frame["d"])?);
                Ok(None)
            }
            Some(3 | 4 | 8) => Ok(None),
            _ => Err(Order::Close(4001)),
        }
    }
}

fn identify(state: &mut State, data: &Value) -> Result<String, Order> {
    if let Some(order) = state.refused.pop_front() {
        return Err(order);
    }
    let given = data["token"].as_str().unwrap_or_default();
    if given.trim_start_matches("Bot ") != token() {
        return Err(Order::Close(4004));
    }
    let intents = data["intents"].as_u64().ok_or(Order::Close(4013))?;
    if intents & 1 << 15 != 0 && !state.content_granted {
        return Err(Order::Close(4014));
    }
    let early = state
        .identified
        .last()
        .is_some_and(|last| last.elapsed() < PAUSE);
    state.identified.push(Instant::now());
    if early {
        return Err(Order::Invalid(false));
    }
    let id = format!("session-{}", state.id());
    let ready = json!({
        "v": 10, "user": state.user_json(BOT), "guilds": [{"id": GUILD.to_string(), "unavailable": true}],
        "session_id": id, "resume_gateway_url": state.gateway_url, "shard": [0, 1],
        "application": {"id": BOT.to_string(), "flags": 1 << 19, "flags_new": (1 << 19).to_string()},
    });
    let guild = guild(state);
    let events = vec![
        ("READY".to_owned(), ready),
        ("GUILD_CREATE".to_owned(), guild),
    ];
    state.sessions.insert(id.clone(), Session { events });
    Ok(id)
}

fn resume(state: &mut State, data: &Value) -> Result<(String, usize), Order> {
    if let Some(order) = state.refused.pop_front() {
        return Err(order);
    }
    let id = data["session_id"].as_str().unwrap_or_default();
    let seq = data["seq"].as_u64().unwrap_or(0);
    let session = state.sessions.get_mut(id).ok_or(Order::Invalid(false))?;
    if usize::try_from(seq).map_or(true, |seq| seq > session.events.len()) {
        return Err(Order::Close(4007));
    }
    session.events.push(("RESUMED".to_owned(), json!({})));
    state.resumed.push(seq);
    Ok((id.to_owned(), seq as usize))
}

fn guild(state: &State) -> Value {
    let of = |wanted: fn(i64) -> bool| -> Vec<Value> {
        let ours = state
            .channels
            .iter()
            .filter(|(_, channel)| channel.kind != DIRECT && wanted(channel.kind));
        ours.map(|(id, _)| state.channel_json(*id)).collect()
    };
    let members: Vec<Value> = [BOT, ANN, BEN]
        .iter()
        .map(|id| state.member_json(*id))
        .collect();
    // Everything but "administrator".
    let everyone = json!({
        "id": GUILD.to_string(), "name": "@everyone", "color": 0, "hoist": false, "position": 0, "flags": 0,
        "permissions": "309237746752", "managed": false, "mentionable": false,
        "colors": {"primary_color": 0, "secondary_color": null, "tertiary_color": null},
    });
    let mut guild = json!({
        "id": GUILD.to_string(), "name": "A team", "icon": null, "splash": null, "owner_id": ANN.to_string(),
        "afk_channel_id": null, "afk_timeout": 300, "verification_level": 0, "default_message_notifications": 0,
        "explicit_content_filter": 0, "roles": [everyone], "emojis": [], "features": [], "mfa_level": 0,
        "system_channel_id": null, "system_channel_flags": 0, "rules_channel_id": null, "vanity_url_code": null,
        "description": null, "banner": null, "premium_tier": 0, "preferred_locale": "en-US", "nsfw_level": 0,
        "public_updates_channel_id": null, "stickers": [], "joined_at": "2026-11-01T10:00:00.000000+00:00",
        "large": false, "unavailable": false, "member_count": 3, "voice_states": [], "members": members,
        "channels": of(|kind| kind != THREAD), "threads": of(|kind| kind == THREAD), "presences": [],
        "stage_instances": [], "guild_scheduled_events": [], "soundboard_sounds": [], "application_id": null,
    });
    for absent in [
        "discovery_splash",
        "hub_type",
        "incidents_data",
        "safety_alerts_channel_id",
    ] {
        guild[absent] = Value::Null;
    }
    guild["premium_progress_bar_enabled"] = json!(false);
    guild
}

impl FakeDiscord {
    /// Does this to every connection.
    pub fn order(&self, order: Order) {
        let _ = self.kept.orders.send(order);
    }

    /// The next identify or resume is answered so.
    pub fn refuse_next(&self, order: Order) {
        self.kept.lock().refused.push_back(order);
    }

    /// Sessions so far cannot be resumed, and their events are lost.
    pub fn forget_sessions(&self) {
        self.kept.lock().sessions.clear();
    }

    /// When clients identified.
    pub fn identified(&self) -> Vec<Instant> {
        self.kept.lock().identified.clone()
    }

    /// How many connections have gone deaf.
    pub fn deaf(&self) -> usize {
        self.kept.lock().deaf
    }

    /// After which events clients resumed.
    pub fn resumed(&self) -> Vec<u64> {
        self.kept.lock().resumed.clone()
    }

    /// `ws://127.0.0.1:PORT`
    pub fn gateway_url(&self) -> String {
        self.kept.lock().gateway_url.clone()
    }

    /// The address of the gateway is told so from now on.
    pub fn tell_gateway(&self, url: String) {
        self.kept.lock().gateway_url = url;
    }

    /// Time between beats, in milliseconds, for connections from now on.
    pub fn beat(&self, millis: u64) {
        self.kept.lock().beat = millis;
    }

    /// The last event comes once more, with a number of its own.
    pub fn again(&self) {
        for session in self.kept.lock().sessions.values_mut() {
            if let Some(last) = session.events.last().cloned() {
                session.events.push(last);
            }
        }
        self.kept.wake();
    }

    /// Whether the bot may read what people write.
    pub fn grant_content(&self, granted: bool) {
        self.kept.lock().content_granted = granted;
    }

    /// How many sessions may still be started.
    pub fn sessions_left(&self, left: u64) {
        self.kept.lock().sessions_left = left;
    }
}
