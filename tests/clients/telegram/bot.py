"""A bot on python-telegram-bot, as anybody would write it: bot.py API_URL TOKEN

It answers a text where it was written, edits what it answered, sends a file, asks with buttons, fetches what it is
sent, and reports what it meets on standard output, a JSON object on each line.
"""

import io
import json
import sys

from telegram import InlineKeyboardButton, InlineKeyboardMarkup, LinkPreviewOptions, Update
from telegram.constants import ChatAction, ParseMode
from telegram.error import BadRequest, Forbidden, RetryAfter, TelegramError
from telegram.ext import Application, CallbackQueryHandler, CommandHandler, MessageHandler, filters


def tell(what, **more):
    print(json.dumps({"what": what, **more}), flush=True)


async def start(update, _):
    await update.message.reply_text(f"hello {update.effective_user.first_name}")


async def report(update, context):
    """Everything that sends, one after the other, in the topic the message stands in."""
    message = update.message
    await message.chat.send_action(ChatAction.TYPING, message_thread_id=message.message_thread_id)
    await message.set_reaction("👀")
    sent = await message.reply_text(
        "<b>working</b> on &lt;it&gt;",
        parse_mode=ParseMode.HTML,
        do_quote=True,
        link_preview_options=LinkPreviewOptions(is_disabled=True),
    )
    same = await sent.edit_text("done: <code>a &amp; b</code>", parse_mode=ParseMode.HTML)
    tell("edited", text=same.text)
    file = io.BytesIO(b"a report")
    await message.reply_document(file, filename="report.txt", caption="the report")
    keyboard = [[InlineKeyboardButton("Yes", callback_data="yes"), InlineKeyboardButton("No", callback_data="no")]]
    await message.reply_text("sure?", reply_markup=InlineKeyboardMarkup(keyboard))
    gone = await message.reply_text("to be removed")
    await gone.delete()


async def pressed(update, _):
    query = update.callback_query
    await query.answer(f"you pressed {query.data}")
    await query.edit_message_text(f"{query.from_user.first_name}: {query.data}")


async def received(update, context):
    document = update.message.document
    file = await document.get_file()
    content = await file.download_as_bytearray()
    tell("file", name=document.file_name, size=document.file_size, content=content.decode(), caption=update.message.caption)


async def edited(update, _):
    tell("edited by a person", text=update.edited_message.text, at=update.edited_message.edit_date is not None)


async def moved(update, _):
    message = update.message
    tell("moved", to=message.migrate_to_chat_id, was=message.migrate_from_chat_id)


async def refused(update, context):
    """What the server says where something is wrong, as the library understands it."""
    chat = update.effective_chat.id
    attempts = {
        "tags": lambda: context.bot.send_message(chat, "<b>never closed", parse_mode=ParseMode.HTML),
        "long": lambda: context.bot.send_message(chat, "x" * 4097),
        "empty": lambda: context.bot.send_message(chat, " "),
        "topic": lambda: context.bot.send_message(chat, "x", message_thread_id=999),
        "reply": lambda: context.bot.send_message(chat, "x", reply_to_message_id=99999),
        "edit": lambda: context.bot.edit_message_text("x", chat, 99999),
        "chat": lambda: context.bot.send_message(1, "x"),
        "reaction": lambda: context.bot.set_message_reaction(chat, update.message.message_id, "✅"),
        "press": lambda: context.bot.answer_callback_query("long ago"),
    }
    for name, attempt in attempts.items():
        try:
            await attempt()
            tell("done", name=name)
        except (BadRequest, Forbidden, RetryAfter) as error:
            tell("refused", name=name, kind=type(error).__name__, said=error.message)
        except TelegramError as error:
            tell("failed", name=name, kind=type(error).__name__, said=error.message)


async def ready(application):
    me = await application.bot.get_me()
    await application.bot.set_my_commands([("start", "Say hello")])
    tell("ready", name=me.username, id=me.id, groups=me.can_read_all_group_messages)


def main():
    url, token = sys.argv[1:]
    application = (
        Application.builder()
        .token(token)
        .base_url(f"{url}/bot")
        .base_file_url(f"{url}/file/bot")
        .post_init(ready)
        .build()
    )
    application.add_handler(CommandHandler("start", start))
    application.add_handler(MessageHandler(filters.UpdateType.EDITED_MESSAGE, edited))
    application.add_handler(MessageHandler(filters.StatusUpdate.MIGRATE, moved))
    application.add_handler(MessageHandler(filters.Document.ALL, received))
    application.add_handler(MessageHandler(filters.Regex("^refuse me$"), refused))
    application.add_handler(MessageHandler(filters.TEXT, report))
    application.add_handler(CallbackQueryHandler(pressed))
    application.run_polling(poll_interval=0, timeout=1, allowed_updates=Update.ALL_TYPES)


main()
