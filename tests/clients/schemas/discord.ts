// Which of discord-api-types is meant by an answer or an event of the fake.
import type {
  APIApplication, APIApplicationCommand, APIChannel, APIGatewayBotInfo, APIGuildMember, APIMessage, APIUser,
  GatewayGuildCreateDispatchData, GatewayInteractionCreateDispatchData, GatewayMessageDeleteDispatchData,
  GatewayMessageEventExtraFields, GatewayReadyDispatchData, GatewayThreadCreateDispatchData, GatewayThreadUpdateDispatchData,
} from "discord-api-types/v10";

export type answer_me = APIUser;
export type answer_application = APIApplication;
export type answer_gateway = APIGatewayBotInfo;
export type answer_commands = APIApplicationCommand[];
export type answer_member = APIGuildMember;
export type answer_channel = APIChannel;
export type answer_wake = APIChannel;
export type answer_post = APIMessage;
export type answer_messages = APIMessage[];
export type answer_message = APIMessage;
export type answer_edit = APIMessage;
export type answer_thread = APIChannel;
export type answer_follow_up = APIMessage;
export type answer_original = APIMessage;
export type event_READY = GatewayReadyDispatchData;
export type event_RESUMED = Record<string, never>;
export type event_GUILD_CREATE = GatewayGuildCreateDispatchData;
export type event_MESSAGE_CREATE = APIMessage & GatewayMessageEventExtraFields;
export type event_MESSAGE_UPDATE = APIMessage & GatewayMessageEventExtraFields;
export type event_MESSAGE_DELETE = GatewayMessageDeleteDispatchData;
export type event_INTERACTION_CREATE = GatewayInteractionCreateDispatchData;
export type event_THREAD_CREATE = GatewayThreadCreateDispatchData;
export type event_THREAD_UPDATE = GatewayThreadUpdateDispatchData;
