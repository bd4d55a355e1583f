import { describe, expect, it } from "vitest";
import { edgeKey, errorEdges, jobWord } from "../live/job-state";
import { decodeGraph, decodeJob, type JobState } from "./jobs";
import { decodeTapEvent } from "./tap";

const HEAD = { id: "j1", name: "hot-hours", submitted: "2026-01-01T00:00:00.000Z", restarts: 0 };

describe("a job", () => {
  it("has figures if it ran in this process", () => {
    const figures = { records_in: 9, rate_in: 1.5, records_out: 3, rate_out: 0.5, errors: 1 };
    const running = decodeJob({ ...HEAD, state: "running", ...figures }, "answer");
    expect(running.figures).toEqual({ ...figures, lag: null });
    const ended = decodeJob({ ...HEAD, state: "failed", ended: "2026-01-02T00:00:00.000Z", reason: "no" }, "answer");
    expect(ended).toMatchObject({ figures: null, reason: "no", ended: "2026-01-02T00:00:00.000Z" });
  });

  it.each<[JobState, string | null, string, string]>([
    ["starting", null, "Starting", "quiet"],
    ["starting", "waits for topic 'a'", "Waiting", "warning"],
    ["running", null, "Running", "good"],
    ["paused", "the server went down", "Paused", "warning"],
    ["completed", null, "Completed", "good"],
    ["stopped", null, "Stopped", "quiet"],
    ["killed", null, "Killed", "quiet"],
    ["failed", "no", "Failed", "error"],
  ])("in the state %s (%s) is shown as %s", (state, reason, word, tone) => {
    expect(jobWord({ state, reason })).toEqual({ word, tone });
  });
});

describe("the graph of a job", () => {
  const node = {
    name: "in",
    type: "stream",
    role: "source",
    instances: 2,
    records_in: 4,
    records_out: 4,
    rate_in: 0.4,
    rate_out: 0.4,
    errors: 2,
    errors_by_code: { cast: 2 },
    unrouted: 0,
    latency_ms: { p50: null, p99: 0.3 },
    queue: null,
    lag: null,
  };

  it("has figures of its nodes and edges", () => {
    const edge = { from: "in", to: "out", exchange: "queue", records: 4, rate: 0.4 };
    const { nodes, edges } = decodeGraph({ nodes: [node], edges: [edge] }, "answer");
    expect(nodes[0]?.figures).toMatchObject({ latency_ms: { p50: null, p99: 0.3 }, queue: null, lag: null });
    expect(nodes[0]?.figures?.errors_by_code.get("cast")).toBe(2);
    expect(edges).toEqual([{ from: "in", to: "out", exchange: "queue", records: 4, rate: 0.4 }]);
  });

  it("has boxes and edges alone if the job has not run, with a reason while it waits", () => {
    const bare = { name: "out", type: "stream", role: "sink", instances: 1, waits: "waits for topic 'a'" };
    const { nodes, edges } = decodeGraph(
      { nodes: [bare], edges: [{ from: "in", to: "out", exchange: "fused" }] },
      "answer",
    );
    expect(nodes[0]).toMatchObject({ figures: null, waits: "waits for topic 'a'", role: "sink" });
    expect(edges[0]?.rate).toBeNull();
  });

  it("tells which edges carry errors, as the routes of the document say", () => {
    const edges = [
      { from: "a", to: "dead" },
      { from: "b", to: "dead" },
      { from: "a", to: "out" },
    ];
    const of = (routes: Record<string, string | boolean | string[]>[]): string[] => [...errorEdges({ routes }, edges)];
    expect(of([{ from: "a", on_error: true, to: ["dead"] }])).toEqual(["a,dead"]);
    expect(of([{ from: "all", on_error: true, to: "dead" }])).toEqual(["a,dead", "b,dead"]);
    expect(of([{ from: "a", to: ["dead"] }])).toEqual([]);
    expect(errorEdges(null, edges).size + errorEdges({}, edges).size).toBe(0);
    expect(edgeKey({ from: "a", to: "b" })).toBe("a,b");
  });
});

describe("an event of a tap", () => {
  it.each([
    [
      { value: { n: 1 }, key: "d1" },
      { value: { n: 1 }, encoding: "json", key: "d1" },
    ],
    [
      { value_text: "plain", key: null },
      { value: "plain", encoding: "text", key: null },
    ],
    [
      { value_base64: "AAEC", key_base64: "/w==" },
      { value: "AAEC", encoding: "base64", key: "/w==" },
    ],
    [
      { value: null, key: "d1" },
      { value: null, encoding: "json", key: "d1" },
    ],
  ])("is the record %j", (told, read) => {
    const event = decodeTapEvent("record", JSON.stringify({ ...told, headers: { h: "v" }, seen: 3 }));
    const rest = { headers: new Map([["h", "v"]]), truncated: false, seen: 3, dropped: 0 };
    expect(event).toEqual({ kind: "record", record: { ...read, ...rest } });
  });

  it("is the end with its reason, or nothing this console knows", () => {
    const end = { kind: "end", reason: "stopped", message: null };
    expect(decodeTapEvent("end", JSON.stringify({ reason: "stopped", seen: 1 }))).toEqual(end);
    expect(decodeTapEvent("newer", "{}")).toBeNull();
    expect(() => decodeTapEvent("end", "{}")).toThrow("end.reason");
  });
});
