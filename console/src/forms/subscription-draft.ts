/**
 * A subscription while it is being typed, and the request that it becomes.
 *
 * A change replaces each member it names as a whole, so what the form does not show (geographic conditions, custom
 * payloads, metadata, retries) is sent back as it was.
 */
import type { Json, JsonObject } from "../api/decode";
import type { Subscription } from "../api/subscriptions";
import { FieldError, type FaultRule } from "./fault";
import { listIn, objectIn, textIn, without } from "./members";
import { NEW_TARGET, TARGET_FIELDS, type TargetDraft, targetDraft, targetOf } from "./target-draft";

export const FORMATS = ["normalized", "keyValues", "simplifiedNormalized", "simplifiedKeyValues", "values"] as const;

/** Entities by id or by a pattern of ids; of one type, of types that match a pattern, or of any. */
export interface RuleDraft {
  by: "id" | "idPattern";
  id: string;
  kindBy: "type" | "typePattern";
  kind: string;
}

export interface SubscriptionDraft extends TargetDraft {
  description: string;
  entities: RuleDraft[];
  /** Lists with commas between names; empty means all. */
  conditionAttrs: string;
  q: string;
  /** A condition in JEXL; empty if there is none. */
  jexl: string;
  attrs: string;
  format: string;
  /** In seconds. */
  throttling: string;
  /** On this machine's clock, as a field for date and time holds it. */
  expires: string;
  queue: "memory" | "durable";
}

export const EVERY_ENTITY: RuleDraft = { by: "idPattern", id: ".*", kindBy: "type", kind: "" };

export const NEW_SUBSCRIPTION: SubscriptionDraft = {
  ...NEW_TARGET,
  description: "",
  entities: [EVERY_ENTITY],
  conditionAttrs: "",
  q: "",
  jexl: "",
  attrs: "",
  format: "normalized",
  throttling: "",
  expires: "",
  queue: "memory",
};

export function subscriptionDraft(subscription: Subscription): SubscriptionDraft {
  const { whole, entities, conditionAttrs, expression, targetKind } = subscription;
  const notification = objectIn(whole, "notification");
  return {
    ...targetDraft(targetKind, objectIn(notification, targetKind)),
    description: subscription.description,
    entities: entities.map(({ id, idPattern, type, typePattern }) => ({
      by: id === null ? "idPattern" : "id",
      id: id ?? idPattern ?? "",
      kindBy: typePattern === null ? "type" : "typePattern",
      kind: type ?? typePattern ?? "",
    })),
    conditionAttrs: conditionAttrs.join(", "),
    q: textIn(expression, "q"),
    jexl: subscription.jexl,
    attrs: listIn(notification, "attrs").join(", "),
    format: textIn(notification, "attrsFormat") || "normalized",
    throttling: subscription.throttling === null ? "" : String(subscription.throttling),
    expires: subscription.expires === null ? "" : localTime(subscription.expires),
    queue: objectIn(notification, "delivery").queue === "durable" ? "durable" : "memory",
  };
}

/** Each member of the body: the fields of the form that it is made of, and how. */
const MEMBERS: readonly {
  name: string;
  fields: readonly (keyof SubscriptionDraft)[];
  make: (draft: SubscriptionDraft, before: Subscription | null) => Json;
}[] = [
  { name: "description", fields: ["description"], make: (draft) => draft.description.trim() },
  {
    name: "subject",
    fields: ["entities", "conditionAttrs", "q", "jexl"],
    make: (draft, before) => subject(draft, objectIn(before?.whole ?? {}, "subject")),
  },
  {
    name: "notification",
    fields: [...TARGET_FIELDS, "attrs", "format", "queue"],
    make: notification,
  },
  { name: "throttling", fields: ["throttling"], make: (draft) => seconds(draft.throttling) },
  {
    name: "expires",
    fields: ["expires"],
    make: (draft) => (draft.expires === "" ? "" : new Date(draft.expires).toISOString()),
  },
];

/** The body that creates the subscription. */
export function newSubscription(draft: SubscriptionDraft): JsonObject {
  const members = MEMBERS.map(({ name, make }) => [name, make(draft, null)] as const);
  return Object.fromEntries(members.filter(([, value]) => value !== "" && value !== 0));
}

/** The members that differ from `before`; an empty object if none does. */
export function changedMembers(draft: SubscriptionDraft, before: Subscription): JsonObject {
  const known = subscriptionDraft(before);
  const differs = (field: keyof SubscriptionDraft): boolean =>
    JSON.stringify(draft[field]) !== JSON.stringify(known[field]);
  const changed = MEMBERS.filter(({ fields }) => fields.some(differs));
  return Object.fromEntries(changed.map(({ name, make }) => [name, make(draft, before)]));
}

function subject(draft: SubscriptionDraft, before: JsonObject): JsonObject {
  const condition = objectIn(before, "condition");
  const expression = without(objectIn(condition, "expression"), "q");
  if (draft.q.trim() !== "") expression.q = draft.q.trim();
  const jexl = draft.jexl.trim();
  const others = without(condition, "expression", "jexlExpression");
  const attrs = names(draft.conditionAttrs);
  return {
    ...before,
    entities: draft.entities.map((rule, index) => ruleOf(rule, index)),
    condition: {
      ...others,
      attrs,
      ...(Object.keys(expression).length > 0 ? { expression } : {}),
      ...(jexl === "" ? {} : { jexlExpression: jexl }),
    },
  };
}

function ruleOf({ by, id, kindBy, kind }: RuleDraft, index: number): JsonObject {
  if (id.trim() === "") {
    throw new FieldError(`${index}.id`, "write an id, or a pattern of ids: .* matches all");
  }
  return { [by]: id.trim(), ...(kind.trim() === "" ? {} : { [kindBy]: kind.trim() }) };
}

/** Members that the server sets by itself. */
const COUNTED = [
  "timesSent",
  "failsCounter",
  "lastNotification",
  "lastSuccess",
  "lastSuccessCode",
  "lastFailure",
  "lastFailureReason",
  "queue",
  "ended",
];

function notification(draft: SubscriptionDraft, before: Subscription | null): JsonObject {
  const known = objectIn(before?.whole ?? {}, "notification");
  const kind = before?.targetKind ?? "";
  const kept = Object.entries(known).filter(([name]) => !COUNTED.includes(name) && name !== kind);
  const body: JsonObject = { ...Object.fromEntries(kept), attrsFormat: draft.format };
  const attrs = names(draft.attrs);
  if (attrs.length > 0) {
    body.attrs = attrs;
    delete body.exceptAttrs;
  } else if (known.attrs !== undefined) body.attrs = [];
  const delivery = { ...objectIn(known, "delivery"), queue: draft.queue };
  if (draft.queue === "durable" || known.delivery !== undefined) body.delivery = delivery;
  const isSameKind = kind.startsWith(draft.target);
  body[isSameKind ? kind : draft.target] = targetOf(draft, isSameKind ? objectIn(known, kind) : {});
  return body;
}

function seconds(text: string): number {
  const value = text.trim() === "" ? 0 : Number(text);
  if (!Number.isInteger(value) || value < 0) {
    throw new FieldError("throttling", `'${text}' is not a number of whole seconds: write one, or nothing`);
  }
  return value;
}

function names(list: string): string[] {
  return list
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
}

/** `2026-05-04T14:03:22` on this machine's clock. */
function localTime(iso: string): string {
  const date = new Date(iso);
  const two = (part: number): string => String(part).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The rules that find the field that the server's words are about. */
export const SUBSCRIPTION_FAULTS: readonly FaultRule[] = [
  [/^(?:the )?description/, "description"],
  [/^user and passwd|^user has/, "user"],
  [/^passwd has/, "password"],
  [/^topic\b/, "topic"],
  [/^key /, "key"],
  [/^saslMechanism/, "mechanism"],
  [/^securityProtocol/, "tls"],
  [/^url |^host '|allowed_targets/, "url"],
  [/^(?:idPattern|typePattern|entity (?:id|type)|entities )|among the entities|of an entity/, "entities"],
  [/^attrs of condition/, "conditionAttrs"],
  [/^jexlExpression/, "jexl"],
  [/^q '|^q\b|expression/, "q"],
  [/^attrs of notification/, "attrs"],
  [/^throttling/, "throttling"],
  [/^expires/, "expires"],
];
