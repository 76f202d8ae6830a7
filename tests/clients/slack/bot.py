"""A bot on slack_bolt, as anybody would write it: bot.py API_URL BOT_TOKEN APP_TOKEN

It answers a mention in its thread, edits what it answered, sends a file, asks with buttons, fetches what it is sent, and
reports what it meets on standard output, a JSON object on each line.
"""

import json
import sys
import urllib.request

from slack_bolt import App
from slack_bolt.adapter.socket_mode import SocketModeHandler
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

api_url, bot_token, app_token = sys.argv[1:4]
app = App(token=bot_token, client=WebClient(token=bot_token, base_url=api_url + "/"))


def tell(what, **more):
    print(json.dumps({"what": what, **more}), flush=True)


@app.event("app_mention")
def mentioned(event, say, client):
    channel, root = event["channel"], event.get("thread_ts", event["ts"])
    client.reactions_add(channel=channel, timestamp=event["ts"], name="eyes")
    sent = say(text="working", thread_ts=root, metadata={"event_type": "reply", "event_payload": {"token": "t-1"}})
    client.chat_update(
        channel=channel, ts=sent["ts"], text="done", blocks=[{"type": "markdown", "text": "**done**: a & b"}]
    )
    client.files_upload_v2(channel=channel, thread_ts=root, filename="report.txt", content="a report")
    button = {"type": "button", "action_id": "go", "value": "v-1", "text": {"type": "plain_text", "text": "Go"}}
    section = {"type": "section", "text": {"type": "mrkdwn", "text": "sure?"}}
    say(text="sure?", thread_ts=root, blocks=[section, {"type": "actions", "elements": [button]}])
    gone = say(text="to be removed", thread_ts=root)
    client.chat_delete(channel=channel, ts=gone["ts"])
    found = client.conversations_replies(channel=channel, ts=root, include_all_metadata=True)
    tokens = [m["metadata"]["event_payload"]["token"] for m in found["messages"] if "metadata" in m]
    link = client.chat_getPermalink(channel=channel, message_ts=sent["ts"])["permalink"]
    tell("mention", text=event["text"], tokens=tokens, link=link)
    try:
        client.chat_postMessage(channel="C404", text="x")
    except SlackApiError as error:
        tell("refused", error=error.response["error"])


@app.action("go")
def pressed(ack, body, client):
    ack()
    channel, ts = body["channel"]["id"], body["message"]["ts"]
    client.chat_update(channel=channel, ts=ts, text=f"pressed {body['actions'][0]['value']}", blocks=[])
    client.chat_postEphemeral(channel=channel, user=body["user"]["id"], text="thanks")


@app.event("message")
def message(event):
    for file in event.get("files", []):
        request = urllib.request.Request(file["url_private_download"])
        request.add_header("Authorization", f"Bearer {bot_token}")
        with urllib.request.urlopen(request) as response:
            tell("file", name=file["name"], content=response.read().decode())
    tell("message", subtype=event.get("subtype"))


@app.command("/mayfly")
def command(ack, command):
    ack()
    tell("command", text=command["text"])


tell("ready", user=app.client.auth_test()["user_id"])
SocketModeHandler(app, app_token).connect()
sys.stdin.read()
