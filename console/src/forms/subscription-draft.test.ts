import { describe, expect, it } from "vitest";
import type { JsonObject } from "../api/decode";
import { decodeSubscription } from "../api/subscriptions";
import { Refused } from "../api/http";
import { faultOf, FieldError } from "./fault";
import {
  changedMembers,
  NEW_SUBSCRIPTION,
  newSubscription,
  SUBSCRIPTION_FAULTS,
  type SubscriptionDraft,
  subscriptionDraft,
} from "./subscription-draft";

const HTTP: SubscriptionDraft = { ...NEW_SUBSCRIPTION, url: "http://h:1/n" };

/** A subscription with members that the form does not show. */
const STORED = {
  id: "01a20190ee92b7923fd1a31d",
  description: "Hot rooms",
  status: "active",
  expires: "2050-04-05T14:00:00.500Z",
  throttling: 5,
  subject: {
    entities: [{ id: "r1", typePattern: "^R" }],
    condition: {
      attrs: ["t"],
      expression: { q: "t>30", mq: "t.u==C" },
      notifyOnMetadataChange: false,
    },
  },
  notification: {
    httpCustom: { url: "http://h/", headers: { a: "b" }, payload: "x" },
    exceptAttrs: ["secret"],
    attrsFormat: "keyValues",
    onlyChangedAttrs: true,
    delivery: { queue: "durable", retry: "always" },
    timesSent: 9,
    lastSuccess: "2026-01-01T00:00:00.000Z",
    ended: { delivered: 9, givenUp: 0 },
    queue: { length: 0, bytes: 0, dropped: 0, held: false },
  },
};
const stored = decodeSubscription(STORED, "answer");
const draft = subscriptionDraft(stored);

const KAFKA: SubscriptionDraft = { ...HTTP, target: "kafka", url: "kafka://b:1,c:2", topic: "rooms" };
const KAFKA_LOGIN: Partial<SubscriptionDraft> = { user: " u ", password: "p" };

/** A subscription whose target is in Kafka. */
const inKafka = (kind: "kafka" | "kafkaCustom", members: JsonObject) =>
  decodeSubscription(
    { ...STORED, notification: { [kind]: { url: "kafka://b:1", topic: "t", ...members }, attrs: [] } },
    "answer",
  );

describe("a new subscription", () => {
  it("is about every entity and sends to a URL, and says no more than that", () => {
    expect(newSubscription(HTTP)).toEqual({
      subject: { entities: [{ idPattern: ".*" }], condition: { attrs: [] } },
      notification: { http: { url: "http://h:1/n" }, attrsFormat: "normalized" },
    });
  });

  it("has all that the form asks for", () => {
    const body = newSubscription({
      ...HTTP,
      description: " Hot ",
      entities: [
        { by: "id", id: " r1 ", kindBy: "type", kind: "Room" },
        { by: "idPattern", id: "^r", kindBy: "typePattern", kind: "^R" },
      ],
      conditionAttrs: "a, b,,",
      q: "a>1",
      jexl: " a > b ",
      target: "mqtt",
      url: "mqtt://b:1883",
      topic: "rooms",
      qos: "1",
      user: "u",
      password: "p",
      attrs: "a",
      format: "keyValues",
      throttling: "3",
      expires: "2050-04-05T14:00:00",
      queue: "durable",
    });
    expect(body).toEqual({
      description: "Hot",
      subject: {
        entities: [
          { id: "r1", type: "Room" },
          { idPattern: "^r", typePattern: "^R" },
        ],
        condition: { attrs: ["a", "b"], expression: { q: "a>1" }, jexlExpression: "a > b" },
      },
      notification: {
        mqtt: { url: "mqtt://b:1883", topic: "rooms", qos: 1, user: "u", passwd: "p" },
        attrs: ["a"],
        attrsFormat: "keyValues",
        delivery: { queue: "durable" },
      },
      throttling: 3,
      expires: new Date("2050-04-05T14:00:00").toISOString(),
    });
  });

  it.each<[Partial<SubscriptionDraft>, JsonObject]>([
    [{}, {}],
    [{ key: "k" }, { key: "k" }],
    [{ tls: "yes" }, { securityProtocol: "SSL" }],
    // Of a login only, and of MQTT only.
    [{ mechanism: "PLAIN", qos: "2" }, {}],
    [KAFKA_LOGIN, { user: "u", passwd: "p", saslMechanism: "SCRAM-SHA-512", securityProtocol: "SASL_PLAINTEXT" }],
    [
      { ...KAFKA_LOGIN, mechanism: "PLAIN", tls: "yes" },
      { user: "u", passwd: "p", saslMechanism: "PLAIN", securityProtocol: "SASL_SSL" },
    ],
  ])("in Kafka with %j has the further members %j", (change, members) => {
    expect(newSubscription({ ...KAFKA, ...change })).toHaveProperty("notification", {
      kafka: { url: "kafka://b:1,c:2", topic: "rooms", ...members },
      attrsFormat: "normalized",
    });
  });

  it.each<[Partial<SubscriptionDraft>, string]>([
    [{ url: " " }, "url"],
    [{ entities: [{ by: "id", id: "", kindBy: "type", kind: "" }] }, "0.id"],
    [{ target: "mqtt", topic: "" }, "topic"],
    [{ target: "mqtt", topic: "t", user: "u" }, "password"],
    [{ target: "mqtt", topic: "t", password: "p" }, "user"],
    [{ ...KAFKA, url: "" }, "url"],
    [{ ...KAFKA, topic: " " }, "topic"],
    [{ ...KAFKA, user: "u" }, "password"],
    [{ ...KAFKA, password: "p" }, "user"],
    [{ throttling: "1.5" }, "throttling"],
    [{ throttling: "-1" }, "throttling"],
  ])("with %j is refused at the field %s", (change, field) => {
    try {
      newSubscription({ ...HTTP, ...change });
      expect.unreachable();
    } catch (cause) {
      expect(cause instanceof FieldError ? cause.field : cause).toBe(field);
    }
  });
});

describe("a change of a subscription", () => {
  it("that changes nothing sends nothing", () => {
    expect(changedMembers(draft, stored)).toEqual({});
  });

  it("sends what the form does not show as it was, and nothing that the server counts", () => {
    const changed = changedMembers({ ...draft, url: "http://other/", q: "" }, stored);
    expect(changed).toEqual({
      subject: {
        entities: [{ id: "r1", typePattern: "^R" }],
        condition: { attrs: ["t"], expression: { mq: "t.u==C" }, notifyOnMetadataChange: false },
      },
      notification: {
        httpCustom: { url: "http://other/", headers: { a: "b" }, payload: "x" },
        exceptAttrs: ["secret"],
        attrsFormat: "keyValues",
        onlyChangedAttrs: true,
        delivery: { queue: "durable", retry: "always" },
      },
    });
  });

  it("clears what is emptied", () => {
    const changed = changedMembers({ ...draft, description: "", throttling: "", expires: "" }, stored);
    expect(changed).toEqual({ description: "", throttling: 0, expires: "" });
  });

  it("to another kind of target leaves the old one behind", () => {
    const { notification } = changedMembers(
      { ...draft, target: "mqtt", url: "mqtt://b:1", topic: "t", attrs: "a" },
      stored,
    );
    expect(notification).toEqual({
      mqtt: { url: "mqtt://b:1", topic: "t", qos: 0 },
      attrs: ["a"],
      attrsFormat: "keyValues",
      onlyChangedAttrs: true,
      delivery: { queue: "durable", retry: "always" },
    });
  });

  it("of an MQTT target with a login asks for its password, which the server hides", () => {
    const mqtt = { url: "mqtt://b:1", topic: "t", qos: 2, retain: true, user: "u", passwd: "*****" };
    const secret = decodeSubscription({ ...STORED, notification: { mqtt, attrs: [] } }, "answer");
    const change = { ...subscriptionDraft(secret), topic: "other" };
    expect(() => changedMembers(change, secret)).toThrow("the password of 'u', which the server does not show");
    expect(changedMembers({ ...change, password: "p" }, secret)).toMatchObject({
      notification: { mqtt: { ...mqtt, topic: "other", passwd: "p" } },
    });
    const renamed = { ...subscriptionDraft(secret), description: "Other" };
    expect(changedMembers(renamed, secret)).toEqual({ description: "Other" });
  });

  it.each<[JsonObject, Partial<SubscriptionDraft>, JsonObject]>([
    // An emptied key is null, because a key that is left out stays.
    [{ key: "k" }, {}, { key: "k" }],
    [{ key: "k" }, { key: "" }, { key: null }],
    [{ key: "k" }, { key: "l" }, { key: "l" }],
    [{}, { key: "k" }, { key: "k" }],
    [{ key: null }, {}, { key: null }],
    [{ key: "" }, {}, { key: "" }],
    [{ headers: { a: "b" }, payload: "x" }, {}, { headers: { a: "b" }, payload: "x" }],
    [{ json: { a: 1 } }, {}, { json: { a: 1 } }],
    [{ ngsi: { a: { value: 1 } } }, {}, { ngsi: { a: { value: 1 } } }],
    [{ securityProtocol: "SSL" }, {}, { securityProtocol: "SSL" }],
    [{ securityProtocol: "SSL" }, { tls: "no" }, {}],
    [{ securityProtocol: "PLAINTEXT" }, { tls: "yes" }, { securityProtocol: "SSL" }],
  ])("of a Kafka target with %j to %j sends %j", (members, change, sent) => {
    const before = inKafka("kafkaCustom", members);
    const changed = changedMembers({ ...subscriptionDraft(before), topic: "other", ...change }, before);
    expect(changed).toEqual({
      notification: {
        kafkaCustom: { url: "kafka://b:1", topic: "other", ...sent },
        attrs: [],
        attrsFormat: "normalized",
      },
    });
  });

  it.each<[JsonObject, Partial<SubscriptionDraft>, JsonObject]>([
    [{}, { password: "p" }, { user: "u", passwd: "p", saslMechanism: "PLAIN", securityProtocol: "SASL_SSL" }],
    [
      { securityProtocol: "SASL_PLAINTEXT" },
      { password: "p", mechanism: "SCRAM-SHA-256" },
      { user: "u", passwd: "p", saslMechanism: "SCRAM-SHA-256", securityProtocol: "SASL_PLAINTEXT" },
    ],
    [
      { securityProtocol: "SASL_SSL" },
      { password: "p", tls: "no" },
      { user: "u", passwd: "p", saslMechanism: "PLAIN", securityProtocol: "SASL_PLAINTEXT" },
    ],
    [{ securityProtocol: "SASL_SSL" }, { user: "" }, { securityProtocol: "SSL" }],
    [{ securityProtocol: "SASL_PLAINTEXT" }, { user: "" }, {}],
  ])("of a Kafka target with a login and %j to %j sends %j", (members, change, sent) => {
    const before = inKafka("kafka", { user: "u", passwd: "*****", saslMechanism: "PLAIN", ...members });
    const known = subscriptionDraft(before);
    expect(changedMembers(known, before)).toEqual({});
    expect(() => changedMembers({ ...known, topic: "other" }, before)).toThrow("which the server does not show");
    const { notification } = changedMembers({ ...known, topic: "other", ...change }, before);
    expect(notification).toHaveProperty("kafka", { url: "kafka://b:1", topic: "other", ...sent });
  });

  it("from Kafka to MQTT leaves what only Kafka has behind", () => {
    const before = inKafka("kafka", { key: "k", securityProtocol: "SSL" });
    const change = { ...subscriptionDraft(before), target: "mqtt" as const, url: "mqtt://b:1" };
    expect(changedMembers(change, before)).toHaveProperty("notification.mqtt", {
      url: "mqtt://b:1",
      topic: "t",
      qos: 0,
    });
    expect(changedMembers(change, before)).not.toHaveProperty("notification.kafka");
  });

  it.each([
    ["", "a > b", { jexlExpression: "a > b" }],
    ["a > b", "a > c", { jexlExpression: "a > c" }],
    ["a > b", " ", {}],
  ])("of the condition in JEXL from '%s' to '%s' sends %j", (from, to, sent) => {
    const condition = { attrs: ["t"], expression: { q: "t>30" } };
    const known = from === "" ? condition : { ...condition, jexlExpression: from };
    const before = decodeSubscription({ ...STORED, subject: { ...STORED.subject, condition: known } }, "answer");
    expect(subscriptionDraft(before).jexl).toBe(from);
    expect(changedMembers({ ...subscriptionDraft(before), jexl: to }, before)).toEqual({
      subject: { ...STORED.subject, condition: { ...condition, ...sent } },
    });
  });
});

it.each([
  ["the description has 1025 characters: at most 1024 are allowed; shorten it", "description"],
  ["url 'ftp://h': it must be http://host[:port][/path] …", "url"],
  ["topic of mqtt of notification of the subscription = a/#: …", "topic"],
  ["topic: 'a b' is no topic of Kafka: …; correct it", "topic"],
  ["topic of kafka of notification of the subscription = a/b: …", "topic"],
  ["topic 't-${': a macro that begins with ${ must end with }; end it", "topic"],
  ["url 'kafka://h': it must be kafka://host:port[,host:port] …", "url"],
  ["host '-i' of url: …; correct it", "url"],
  ["key of kafka of notification of the subscription = 1: …", "key"],
  ["key '${': a macro that begins with ${ must end with }; end it", "key"],
  ["user and passwd of kafka of notification of the subscription = one of them: …", "user"],
  ["saslMechanism of kafka of notification of the subscription = GSSAPI: …", "mechanism"],
  ["securityProtocol of kafka of notification of the subscription = SSL: …", "tls"],
  ["jexlExpression of condition of subject of the subscription = 1: …", "jexl"],
  ["idPattern '(' is no regular expression that can be used: …", "entities"],
  ["q 'a=': …; correct it", "q"],
  ["attrs of condition of subject of the subscription: 'a b' is no identifier", "conditionAttrs"],
  ["attrs of notification of the subscription: 'a b' is no identifier", "attrs"],
  ['expires of the subscription = "x": …', "expires"],
  ["there are 1000 subscriptions", ""],
])("the server's words '%s' belong to the field '%s'", (words, field) => {
  expect(faultOf(new Refused(400, words, []), SUBSCRIPTION_FAULTS).field).toBe(field);
});
