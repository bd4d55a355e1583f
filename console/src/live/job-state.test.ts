import { describe, expect, it } from "vitest";
import { readsTopic } from "./job-state";

describe("a job reads a topic", () => {
  it("if one of its sources is a stream, not if a sink is", () => {
    const clock = { role: "source", type: "generator" } as const;
    const topic = { role: "source", type: "stream" } as const;
    const written = { role: "sink", type: "stream" } as const;
    expect(readsTopic({ nodes: [clock, topic, written] })).toBe(true);
    expect(readsTopic({ nodes: [clock, written] })).toBe(false);
    expect(readsTopic({ nodes: [] })).toBe(false);
  });
});
