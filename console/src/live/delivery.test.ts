import { describe, expect, it } from "vitest";
import { decodeSubscription, type Delivery, type Status } from "../api/subscriptions";
import { deliveryState, ruleText, subjectText, unaccounted } from "./delivery";

const TOLD = {
  id: "01a20190ee92b7923fd1a31d",
  status: "active",
  subject: {
    entities: [{ idPattern: ".*", type: "Room" }],
    condition: { attrs: ["temp"], expression: { q: "temp>30", georel: "near;maxDistance:9" } },
  },
  notification: { mqtt: { url: "mqtt://b:1883", topic: "rooms", qos: 0 }, timesSent: 4, attrs: [] },
  throttling: 1,
};

describe("a subscription", () => {
  it("is read without its missing members", () => {
    const subscription = decodeSubscription(TOLD, "answer");
    expect(subscription).toMatchObject({
      description: "",
      targetKind: "mqtt",
      target: "mqtt://b:1883 rooms",
      delivery: { timesSent: 4, failsCounter: 0, lastSuccess: null, queue: null },
    });
    expect(subjectText(subscription)).toBe("Room when temp changes, if temp>30, georel near;maxDistance:9");
  });

  it("without a condition is about every change", () => {
    const plain = { ...TOLD, subject: { entities: [{ id: "r1", type: "Room" }, { idPattern: "^r" }] } };
    expect(subjectText(decodeSubscription(plain, "answer"))).toBe("r1 (Room); any type with id /^r/ on every change");
    expect(ruleText({ id: null, idPattern: null, type: null, typePattern: "R.*" })).toBe("type /R.*/");
  });

  it("in Kafka is read with its topic, and its condition in JEXL is shown beside the others", () => {
    const kafka = { url: "kafka://b:9092,c:9092", topic: "rooms", key: "k" };
    const condition = { ...TOLD.subject.condition, jexlExpression: "a > b" };
    const told = { ...TOLD, subject: { ...TOLD.subject, condition } };
    for (const kind of ["kafka", "kafkaCustom"]) {
      const subscription = decodeSubscription({ ...told, notification: { [kind]: kafka } }, "answer");
      expect(subscription).toMatchObject({ targetKind: kind, target: "kafka://b:9092,c:9092 rooms", jexl: "a > b" });
      expect(subjectText(subscription)).toBe(
        "Room when temp changes, if temp>30, georel near;maxDistance:9, jexl a > b",
      );
    }
    const alone = { ...TOLD, subject: { entities: [{ id: "r1" }], condition: { jexlExpression: "a > b" } } };
    expect(subjectText(decodeSubscription(alone, "answer"))).toBe("r1 (any type) on every change, if jexl a > b");
  });

  it("tells how its notifications ended, or that this is unknown", () => {
    expect(decodeSubscription(TOLD, "answer").delivery.ended).toBeNull();
    const fresh = { ...TOLD, notification: { ...TOLD.notification, timesSent: 0 } };
    expect(decodeSubscription(fresh, "answer").delivery.ended).toEqual({ delivered: 0, givenUp: 0 });
    const queue = { length: 2, bytes: 9, dropped: 1, held: false };
    const notification = { ...TOLD.notification, timesSent: 9, queue, ended: { delivered: 4, givenUp: 1 } };
    const { delivery } = decodeSubscription({ ...TOLD, notification }, "answer");
    expect(delivery.ended).toEqual({ delivered: 4, givenUp: 1 });
    expect(unaccounted(delivery)).toBe(1);
    expect(unaccounted({ ...delivery, ended: null })).toBeNull();
    // One that ends between the two counts is not less than nothing.
    expect(unaccounted({ ...delivery, timesSent: 7 })).toBe(0);
  });

  it.each<[Status, Partial<Delivery>, string, string]>([
    ["active", { timesSent: 0 }, "Quiet", "quiet"],
    ["active", {}, "Sent", "quiet"],
    ["active", { lastSuccess: "2026-01-01T00:00:00.000Z" }, "Delivering", "good"],
    ["active", { lastSuccess: "2026-01-01T00:00:00.000Z", failsCounter: 1 }, "Failing", "error"],
    ["active", { queue: { length: 3, bytes: 9, dropped: 0, held: false } }, "Waiting", "warning"],
    [
      "active",
      {
        queue: { length: 1, bytes: 9, dropped: 0, held: false },
        lastNotification: "2026-01-01T00:00:02.000Z",
        lastSuccess: "2026-01-01T00:00:00.000Z",
      },
      "Delivering",
      "good",
    ],
    ["oneshot", {}, "Armed", "good"],
    ["inactive", { failsCounter: 1 }, "Paused", "quiet"],
    ["inactive", { failsCounter: 4, maxFailsLimit: 3 }, "Gave up", "error"],
    ["expired", { failsCounter: 1 }, "Expired", "quiet"],
  ])("that is %s with %j is called %s", (status, change, word, tone) => {
    const subscription = decodeSubscription(TOLD, "answer");
    const state = deliveryState({ ...subscription, status, delivery: { ...subscription.delivery, ...change } });
    expect([state.word, state.tone]).toEqual([word, tone]);
  });
});
