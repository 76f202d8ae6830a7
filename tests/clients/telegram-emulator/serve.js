// An emulator of Telegram that others wrote, and a person in it. Lines on standard input are said to
// the bot; each text of the bot, and what it becomes, is a line of JSON on standard output.
"use strict";

const { createServer } = require("net");
const readline = require("readline");

const [modules, token] = process.argv.slice(2);
const TelegramServer = require(`${modules}/telegram-test-api`);

const tell = (what) => console.log(JSON.stringify(what));

function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

async function main() {
  const server = new TelegramServer({ port: await freePort(), host: "127.0.0.1", storeTimeout: 600 });
  await server.start();
  const person = server.getClient(token, { userId: 7, chatId: 7, firstName: 'Ann' });
  const told = new Map();
  const look = () => {
    for (const { messageId, message } of server.storage.botMessages) {
      if (told.get(messageId) !== message.text) {
        told.set(messageId, message.text);
        tell({ what: "said", id: messageId, text: message.text });
      }
    }
  };
  server.on("AddedBotMessage", look);
  server.on("EditedMessageText", look);
  readline.createInterface({ input: process.stdin }).on("line", async (text) => {
    await person.sendMessage(person.makeMessage(text));
  });
  tell({ what: "serving", url: server.config.apiURL });
}

main();
