/**
 * The target of a subscription while it is being typed: a receiver over HTTP, an MQTT broker or a topic of Kafka.
 *
 * A change sends the members that the form does not show (headers, payloads, methods) as they were.
 */
import type { Json, JsonObject } from "../api/decode";
import { FieldError } from "./fault";
import { textIn, without } from "./members";

const KINDS = ["http", "mqtt", "kafka"] as const;

/** Ways in which a login to Kafka proves that it knows the password. */
export const MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] as const;

export interface TargetDraft {
  target: (typeof KINDS)[number];
  url: string;
  /** Of MQTT or Kafka. */
  topic: string;
  /** Of MQTT. */
  qos: string;
  /** Of the records in Kafka; empty for records without a key. */
  key: string;
  user: string;
  /** The server never shows it: a change of a target with a login needs it again. */
  password: string;
  /** Of a login to Kafka. */
  mechanism: string;
  /** Whether connections to Kafka's brokers go over TLS. */
  tls: "yes" | "no";
}

export const NEW_TARGET: TargetDraft = {
  target: "http",
  url: "",
  topic: "",
  qos: "0",
  key: "",
  user: "",
  password: "",
  mechanism: MECHANISMS[0],
  tls: "no",
};

export const TARGET_FIELDS = Object.keys(NEW_TARGET) as (keyof TargetDraft)[];

/** The draft of a known target; `name` is the member of the notification that holds it. */
export function targetDraft(name: string, known: JsonObject): TargetDraft {
  const target = KINDS.find((kind) => name.startsWith(kind)) ?? "http";
  return {
    target,
    url: textIn(known, "url"),
    topic: textIn(known, "topic"),
    qos: textIn(known, "qos") || NEW_TARGET.qos,
    key: textIn(known, "key"),
    user: textIn(known, "user"),
    password: "",
    mechanism: textIn(known, "saslMechanism") || NEW_TARGET.mechanism,
    tls: target === "kafka" && isOverTls(known) ? "yes" : "no",
  };
}

function isOverTls(known: JsonObject): boolean {
  const protocol = textIn(known, "securityProtocol");
  return protocol === "" ? known.user !== undefined : ["SASL_SSL", "SSL"].includes(protocol);
}

/** The target that a request names; `known` is the one of the same kind that it replaces, or empty. */
export function targetOf(draft: TargetDraft, known: JsonObject): JsonObject {
  const url = draft.url.trim();
  if (url === "") throw new FieldError("url", `write where notifications go, such as ${EXAMPLES[draft.target]}`);
  if (draft.target === "http") return { ...known, url };
  const topic = draft.topic.trim();
  if (topic === "") throw new FieldError("topic", "write the topic that notifications are published to");
  const login = loginOf(draft, known);
  const body = { ...without(known, "user", "passwd"), url, topic, ...login };
  if (draft.target === "mqtt") return { ...body, qos: Number(draft.qos) };
  return {
    ...without(body, "key", "saslMechanism", "securityProtocol"),
    ...keyOf(draft.key, known.key),
    ...(login === null ? {} : { saslMechanism: draft.mechanism }),
    ...securityOf(login !== null, draft.tls === "yes"),
  };
}

export const EXAMPLES = {
  http: "http://localhost:5050/alarm",
  mqtt: "mqtt://localhost:1883",
  kafka: "kafka://localhost:9092",
} as const;

function loginOf(draft: TargetDraft, known: JsonObject): { user: string; passwd: string } | null {
  const user = draft.user.trim();
  if (user === "" && draft.password === "") return null;
  if (user === "") throw new FieldError("user", "write the user that the password is of, or leave the password out");
  if (draft.password === "") {
    const because = known.passwd === undefined || known.user !== user ? "" : ", which the server does not show";
    throw new FieldError("password", `write the password of '${user}'${because}`);
  }
  return { user, passwd: draft.password };
}

/** A change keeps a key that it leaves out, so an emptied one is null. The field shows no key and an empty one alike. */
function keyOf(key: string, known: Json | undefined): { key?: Json } {
  if (key !== "") return { key };
  if (known === undefined) return {};
  return { key: known === "" ? "" : null };
}

/** Without a login, connections without TLS are the default. */
function securityOf(hasLogin: boolean, isTls: boolean): { securityProtocol?: string } {
  if (hasLogin) return { securityProtocol: isTls ? "SASL_SSL" : "SASL_PLAINTEXT" };
  return isTls ? { securityProtocol: "SSL" } : {};
}
