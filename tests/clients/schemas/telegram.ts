// Which of @grammyjs/types is meant by an answer or an update of the fake.
import type {
  ApiResponse, BotCommand, ChatFullInfo, File, ForumTopic, Message, Update, UserFromGetMe, WebhookInfo,
} from "@grammyjs/types";

export type answer_getme = ApiResponse<UserFromGetMe>;
export type answer_getupdates = ApiResponse<Update[]>;
export type answer_getchat = ApiResponse<ChatFullInfo>;
export type answer_getfile = ApiResponse<File>;
export type answer_getwebhookinfo = ApiResponse<WebhookInfo>;
export type answer_getmycommands = ApiResponse<BotCommand[]>;
export type answer_sendmessage = ApiResponse<Message.TextMessage>;
export type answer_senddocument = ApiResponse<Message.DocumentMessage>;
export type answer_editmessagetext = ApiResponse<(Update.Edited & Message.TextMessage) | true>;
export type answer_createforumtopic = ApiResponse<ForumTopic>;
export type answer_deletemessage = ApiResponse<true>;
export type answer_setmessagereaction = ApiResponse<true>;
export type answer_sendchataction = ApiResponse<true>;
export type answer_answercallbackquery = ApiResponse<true>;
export type answer_setmycommands = ApiResponse<true>;
export type answer_setwebhook = ApiResponse<true>;
export type answer_deletewebhook = ApiResponse<true>;
export type answer_deletemycommands = ApiResponse<true>;
