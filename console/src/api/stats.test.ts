import { describe, expect, it } from "vitest";
import { decodeEngine } from "./stats";

describe("the engine of the log", () => {
  it("is the built-in one, whose directory not every caller is told", () => {
    expect(decodeEngine({ name: "embedded", dir: "/data/log" }, "engine")).toEqual({
      name: "embedded",
      dir: "/data/log",
    });
    expect(decodeEngine({ name: "embedded", dir: null }, "engine")).toEqual({ name: "embedded", dir: null });
  });

  it("is Apache Kafka, with brokers and troubles", () => {
    const kafka = {
      name: "kafka",
      brokers: [
        { id: 1, address: "kafka-1:9092", silent_s: null },
        { id: 2, address: null, silent_s: 34 },
      ],
      troubles: [{ topic: "orders", partition: 0, kind: "no_leader", why: "has no leader" }],
      warnings: ["the clock of broker 1 is 61 min ahead"],
    };
    expect(decodeEngine(kafka, "engine")).toEqual(kafka);
  });

  it("is none that this console does not know", () => {
    expect(() => decodeEngine({ name: "paper" }, "engine")).toThrow("engine.name");
  });
});
