//! `mayfly pair …`: people are let in by a code that is good once.

use mayfly_adapters::telegram;
use mayfly_orchestrator::view::{PairedView, PairingView};

use super::platform::switched_on;
use crate::{
    cli::{Context, PairVerb},
    client::once,
    door,
    exit::{Exit, Failure},
    http::wire::{PairBody, UnpairBody},
    render,
};

const TELEGRAM: &str = "telegram";

pub(crate) async fn run(context: &Context, verb: PairVerb) -> Result<Exit, Failure> {
    let config = &context.loaded.config;
    let screen = context.screen;
    match verb {
        PairVerb::Telegram => {
            let telegram = config.telegram.config();
            let telegram = switched_on(telegram, TELEGRAM, "TELEGRAM_BOT_TOKEN")?;
            let body = PairBody {
                platform: TELEGRAM.to_owned(),
            };
            let opened = door::through(config, async |client| {
                once(client.pair(&body).await, "mayfly pair telegram")
            });
            let opened = opened.await?;
            let bot = telegram::setup::username(&telegram).await;
            screen.show(&opened, |opened, _| told(opened, bot.as_deref()));
        }
        PairVerb::List => {
            let paired = door::through(config, async |client| Ok(client.paired().await?)).await?;
            if paired.is_empty() && !screen.json {
                screen.notice("nobody is paired");
            }
            screen.show(&paired, |paired, screen| render::paired(paired, screen));
        }
        PairVerb::Remove { person } => {
            let body = UnpairBody {
                platform: TELEGRAM.to_owned(),
                person,
            };
            let removed = door::through(config, async |client| {
                once(client.unpair(&body).await, "mayfly pair list")
            });
            screen.show(&removed.await?, |gone: &PairedView, _| {
                format!("{} may not speak any more", gone.person)
            });
        }
    }
    Ok(Exit::Ok)
}

fn told(opened: &PairingView, bot: Option<&str>) -> String {
    let code = &opened.code;
    let (to, link) = match bot {
        Some(bot) => (
            format!("@{bot}"),
            format!("\nor open https://t.me/{bot}?start={code}"),
        ),
        None => ("the bot".to_owned(), String::new()),
    };
    format!(
        "/pair {code}\nSend this line to {to} in a direct chat{link}\nIt is good once, for ten minutes, \
         while mayfly serve runs. The bot answers when it is done."
    )
}
