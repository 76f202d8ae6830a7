// Which types of Slack's own packages are meant by an answer or an event of the fake.
import type {
  AppsConnectionsOpenResponse, AuthTestResponse, ChatDeleteResponse, ChatGetPermalinkResponse, ChatPostEphemeralResponse,
  ChatPostMessageResponse, ChatUpdateResponse, ConversationsHistoryResponse, ConversationsInfoResponse,
  ConversationsRepliesResponse, FilesCompleteUploadExternalResponse, FilesGetUploadURLExternalResponse, FilesInfoResponse,
  ReactionsAddResponse, ReactionsRemoveResponse, UsersInfoResponse,
} from "@slack/web-api";
import type { BlockAction, ButtonAction, EnvelopedEvent, SlashCommand } from "@slack/bolt";
import type { AppMentionEvent, FileShareMessageEvent, GenericMessageEvent, MessageChangedEvent, MessageDeletedEvent } from "@slack/types";

export type answer_apps_connections_open = AppsConnectionsOpenResponse;
export type answer_auth_test = AuthTestResponse;
export type answer_chat_delete = ChatDeleteResponse;
export type answer_chat_getPermalink = ChatGetPermalinkResponse;
export type answer_chat_postEphemeral = ChatPostEphemeralResponse;
// Blocks and metadata in answers are published as far as samples had them: what was sent comes back.
type Sent<Answer> = Omit<Answer, "message"> & { message?: { metadata?: unknown; blocks?: unknown[] } & Record<string, unknown> };
export type answer_chat_postMessage = Sent<ChatPostMessageResponse>;
export type answer_chat_update = ChatUpdateResponse;
export type answer_conversations_history = ConversationsHistoryResponse;
export type answer_conversations_info = ConversationsInfoResponse;
export type answer_conversations_replies = Omit<ConversationsRepliesResponse, "messages"> & { messages?: Listed[] };
type Listed = Omit<NonNullable<ConversationsRepliesResponse["messages"]>[number], "blocks" | "metadata"> & {
  metadata?: unknown; blocks?: unknown[];
};
export type answer_files_completeUploadExternal = FilesCompleteUploadExternalResponse;
export type answer_files_getUploadURLExternal = FilesGetUploadURLExternalResponse;
export type answer_files_info = FilesInfoResponse;
export type answer_reactions_add = ReactionsAddResponse;
export type answer_reactions_remove = ReactionsRemoveResponse;
export type answer_users_info = UsersInfoResponse;
// Published are the fields of a post of people; one of a program names its app, too, and a nested post no channel.
// Of files in events two types are published that exclude each other: they are left open here.
type Attached = unknown;
type Post = Omit<GenericMessageEvent, "subtype" | "files"> & {
  app_id?: string; hidden?: boolean; files?: Attached[];
};
type Nested = Omit<Post, "event_ts" | "channel" | "channel_type">;
export type event_events_api = EnvelopedEvent<
  | AppMentionEvent
  | Post
  | (Post & Pick<FileShareMessageEvent, "subtype">)
  | (Omit<MessageChangedEvent, "message" | "previous_message"> & { message: Nested; previous_message: Nested })
  | (Omit<MessageDeletedEvent, "previous_message"> & { previous_message?: Nested })
>;
export type event_interactive = BlockAction<ButtonAction>;
export type event_slash_commands = SlashCommand;
