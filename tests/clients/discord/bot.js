// A bot as discord.js wants it: it answers a mention in a thread, with a file and a button, edits its answer and
// acknowledges the press. Every event, as the library understood it, is a line of JSON on standard output.
"use strict";

const {
  ActionRowBuilder,
  ButtonBuilder,
  ButtonStyle,
  Client,
  Events,
  GatewayIntentBits,
  MessageFlags,
} = require("discord.js");

const [api, token] = process.argv.slice(2);
const intents = ["Guilds", "GuildMessages", "DirectMessages", "MessageContent"].map(
  (name) => GatewayIntentBits[name],
);
const client = new Client({ intents, rest: { api, retries: 0 } });
const tell = (line) => console.log(JSON.stringify(line));

async function answer(message) {
  const thread = await message.startThread({ name: "An answer", autoArchiveDuration: 1440 });
  const reply = await thread.send("working");
  await reply.edit("**done**");
  const content = Buffer.from("figures\n");
  await thread.send({ content: "a file", files: [{ attachment: content, name: "figures.txt" }] });
  const stop = new ButtonBuilder().setCustomId("stop-1").setLabel("Stop").setStyle(ButtonStyle.Danger);
  await thread.send({ content: "stop?", components: [new ActionRowBuilder().addComponents(stop)] });
  await message.react("✅");
  tell({ answered: thread.id, parent: thread.parentId });
}

client.once(Events.ClientReady, (ready) => tell({ ready: ready.user.username }));
client.on(Events.MessageCreate, (message) => {
  if (message.author.bot) return;
  const files = message.attachments.map((file) => ({ name: file.name, size: file.size }));
  tell({
    heard: message.content,
    by: message.author.username,
    thread: message.channel.isThread(),
    guild: message.guildId,
    files,
  });
  if (message.mentions.has(client.user)) answer(message).catch((error) => tell({ error: String(error) }));
});
client.on(Events.MessageUpdate, (_before, after) => {
  if (!after.author.bot) tell({ edited: after.content });
});
client.on(Events.MessageDelete, (message) => tell({ deleted: message.id }));
client.on(Events.InteractionCreate, async (press) => {
  try {
    if (press.isButton()) {
      await press.deferUpdate();
      await press.followUp({ content: "stopped", flags: MessageFlags.Ephemeral });
      await press.message.edit({ content: "stopped", components: [] });
      tell({ pressed: press.customId, by: press.user.username });
    } else if (press.isChatInputCommand()) {
      await press.deferReply({ flags: MessageFlags.Ephemeral });
      await press.editReply(`got ${press.options.getString("text")}`);
      tell({ command: press.commandName });
    }
  } catch (error) {
    tell({ error: String(error) });
  }
});
client.on(Events.Error, (error) => tell({ error: String(error) }));
client.login(token).catch((error) => tell({ error: String(error) }));
