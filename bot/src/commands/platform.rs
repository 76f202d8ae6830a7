//! `mayfly platform`: what a platform has to be told once.

use mayfly_adapters::{discord, slack, telegram};
use mayfly_orchestrator::orders::grammar::Order;

use crate::{
    cli::{Context, DiscordVerb, PlatformVerb, SlackVerb, TelegramVerb},
    exit::{Exit, Failure},
};

pub(crate) async fn run(context: &Context, verb: PlatformVerb) -> Result<Exit, Failure> {
    let told = match verb {
        PlatformVerb::Slack(SlackVerb::Manifest { url }) => {
            let url = url.as_deref().map(slack::request_url).transpose();
            let url = url.map_err(|sentence| Failure::new(Exit::Usage, sentence))?;
            slack::manifest(url.as_deref())
        }
        PlatformVerb::Discord(DiscordVerb::Invite { application }) => {
            discord::setup::invite(&application)
                .map_err(|sentence| Failure::new(Exit::Usage, sentence))?
        }
        PlatformVerb::Discord(DiscordVerb::Commands) => {
            let config = context.loaded.config.discord.config();
            let config = switched_on(config, "discord", "DISCORD_BOT_TOKEN")?;
            registered(async |commands| discord::setup::register_commands(&config, commands).await)
                .await?
        }
        PlatformVerb::Telegram(TelegramVerb::Commands) => {
            let config = context.loaded.config.telegram.config();
            let config = switched_on(config, "telegram", "TELEGRAM_BOT_TOKEN")?;
            registered(async |commands| telegram::setup::register_commands(&config, commands).await)
                .await?
        }
    };
    context.screen.show(&told, |told, _| told.clone());
    Ok(Exit::Ok)
}

pub(super) fn switched_on<C>(
    config: Option<Result<C, String>>,
    section: &str,
    variable: &str,
) -> Result<C, Failure> {
    let off = || {
        let told = format!(
            "there is no token: set {variable}, or bot_token in [{section}] of the configuration"
        );
        Failure::new(Exit::Configuration, told)
    };
    let config = config.ok_or_else(off)?;
    config.map_err(|sentence| Failure::new(Exit::Configuration, sentence))
}

async fn registered(
    register: impl AsyncFnOnce(&[(&str, &str)]) -> Result<(), String>,
) -> Result<String, Failure> {
    let all = Order::all();
    let commands: Vec<(&str, &str)> = all
        .iter()
        .map(|(name, about)| (name.as_str(), about.as_str()))
        .collect();
    let done = register(&commands).await;
    done.map_err(|sentence| Failure::new(Exit::Unavailable, sentence))?;
    Ok(format!("{} commands are registered", commands.len()))
}
