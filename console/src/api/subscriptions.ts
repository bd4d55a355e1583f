/** NGSI-v2 subscriptions: who is told of which changes, and how telling them goes. */
import {
  array,
  type Decoder,
  type Json,
  type JsonObject,
  nullable,
  number,
  object,
  plainObject,
  string,
  withDefault,
} from "./decode";
import { ask, change } from "./http";

export const STATUSES = ["active", "inactive", "oneshot", "expired", "failed"] as const;
export type Status = (typeof STATUSES)[number];

/** Which entities: of an id or a pattern, of a type or a pattern. */
export interface EntityRule {
  id: string | null;
  idPattern: string | null;
  type: string | null;
  typePattern: string | null;
}

/** What waits to be sent. */
export interface Queue {
  length: number;
  bytes: number;
  /** Went because the queue was full. */
  dropped: number;
  /** Whether throttling holds something back. */
  held: boolean;
}

/** Counts of notifications that are over. */
export interface Ended {
  delivered: number;
  /** Could not be delivered in the time that they had. */
  givenUp: number;
}

export interface Delivery {
  /** Notifications that were made, whatever became of them. */
  timesSent: number;
  /** Null for subscriptions that are older than these counters. */
  ended: Ended | null;
  /** Failures in a row. */
  failsCounter: number;
  maxFailsLimit: number | null;
  lastNotification: string | null;
  lastSuccess: string | null;
  lastSuccessCode: number | null;
  lastFailure: string | null;
  lastFailureReason: string | null;
  queue: Queue | null;
}

export interface Subscription {
  id: string;
  description: string;
  status: Status;
  expires: string | null;
  throttling: number | null;
  entities: EntityRule[];
  /** Changes of these attributes count; of all if empty. */
  conditionAttrs: string[];
  /** `q`, `mq`, `georel` and so on. */
  expression: JsonObject;
  /** A condition in JEXL; empty if there is none. */
  jexl: string;
  /** `http`, `mqtt`, … */
  targetKind: string;
  /** Where notifications go: an address, for MQTT and Kafka with the topic. */
  target: string;
  delivery: Delivery;
  /** All that the server says. */
  whole: JsonObject;
}

export interface SubscriptionPage {
  subscriptions: Subscription[];
  total: number;
}

const entityRule = object<EntityRule>({
  id: nullable(string),
  idPattern: nullable(string),
  type: nullable(string),
  typePattern: nullable(string),
});

const queue = object<Queue>({
  length: withDefault(number, 0),
  bytes: withDefault(number, 0),
  dropped: withDefault(number, 0),
  held: (value) => value === true,
});

const delivery = object<Delivery>({
  // Counters are absent while they are 0.
  timesSent: withDefault(number, 0),
  ended: nullable(object<Ended>({ delivered: number, givenUp: number })),
  failsCounter: withDefault(number, 0),
  maxFailsLimit: nullable(number),
  lastNotification: nullable(string),
  lastSuccess: nullable(string),
  lastSuccessCode: nullable(number),
  lastFailure: nullable(string),
  lastFailureReason: nullable(string),
  queue: nullable(queue),
});

/** Nothing has ended before the first notification: until then servers leave the counts out. */
const counts: Decoder<Delivery> = (value, path) => {
  const read = delivery(value, path);
  return read.timesSent === 0 ? { ...read, ended: read.ended ?? { delivered: 0, givenUp: 0 } } : read;
};

const status: Decoder<Status> = (value, path) => {
  const text = string(value, path);
  // A status of a newer server means no more to this page than that nothing can be done about it.
  return STATUSES.find((known) => known === text) ?? "failed";
};

const TARGETS = ["http", "httpCustom", "mqtt", "mqttCustom", "kafka", "kafkaCustom"] as const;
const targetParts = object({ url: withDefault(string, ""), topic: nullable(string) });

function target(notification: Record<string, unknown>, path: string): { targetKind: string; target: string } {
  const kind = TARGETS.find((name) => notification[name] !== undefined);
  if (kind === undefined) return { targetKind: "", target: "" };
  const { url, topic } = targetParts(notification[kind], `${path}.${kind}`);
  return { targetKind: kind, target: topic === null ? url : `${url} ${topic}` };
}

const head = object({
  id: string,
  description: withDefault(string, ""),
  status,
  expires: nullable(string),
  throttling: nullable(number),
});

const subject = object({
  entities: withDefault(array(entityRule), []),
  condition: withDefault(
    object({
      attrs: withDefault(array(string), []),
      expression: withDefault(dictionaryOfJson, {}),
      jexlExpression: withDefault(string, ""),
    }),
    { attrs: [], expression: {}, jexlExpression: "" },
  ),
});

function dictionaryOfJson(value: unknown, path: string): JsonObject {
  return plainObject(value, path) as Record<string, Json>;
}

export const decodeSubscription: Decoder<Subscription> = (value, path) => {
  const whole = plainObject(value, path);
  const { entities, condition } = subject(whole.subject, `${path}.subject`);
  const notification = plainObject(whole.notification, `${path}.notification`);
  return {
    ...head(whole, path),
    entities,
    conditionAttrs: condition.attrs,
    expression: condition.expression,
    jexl: condition.jexlExpression,
    ...target(notification, `${path}.notification`),
    delivery: counts(notification, `${path}.notification`),
    whole: whole as Record<string, Json>,
  };
};

export async function fetchSubscriptions(tenant: string, limit: number, offset: number): Promise<SubscriptionPage> {
  const query = new URLSearchParams({ limit: String(limit), offset: String(offset), options: "count" });
  const call = { path: `/v2/subscriptions?${query}`, tenant };
  const { value: subscriptions, headers } = await ask(call, array(decodeSubscription));
  const total = Number(headers.get("Fiware-Total-Count") ?? Number.NaN);
  return { subscriptions, total: Number.isFinite(total) ? total : offset + subscriptions.length };
}

export async function fetchSubscription(tenant: string, id: string): Promise<Subscription> {
  return (await ask({ path: pathOf(id), tenant }, decodeSubscription)).value;
}

/** Lets a subscription sleep, wakes it, or arms it for one notification. */
export async function setStatus(tenant: string, id: string, to: "active" | "inactive" | "oneshot"): Promise<void> {
  await changeSubscription(tenant, id, { status: to });
}

/** Creates a subscription and answers its id. */
export async function createSubscription(tenant: string, body: JsonObject): Promise<string> {
  const headers = await change({ path: "/v2/subscriptions", tenant, method: "POST", body });
  return headers.get("Location")?.split("/").at(-1) ?? "";
}

/** Replaces the members that `body` names, each as a whole. */
export async function changeSubscription(tenant: string, id: string, body: JsonObject): Promise<void> {
  await change({ path: pathOf(id), tenant, method: "PATCH", body });
}

export async function deleteSubscription(tenant: string, id: string): Promise<void> {
  await change({ path: pathOf(id), tenant, method: "DELETE" });
}

function pathOf(id: string): string {
  return `/v2/subscriptions/${encodeURIComponent(id)}`;
}
