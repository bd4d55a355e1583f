import { describe, expect, it } from "vitest";
import { completeJob } from "./completion";

const NAMES = { anyOf: [{ type: "string" }, { type: "array", items: { type: "string" } }] };

const ofType = (type: string, config: Record<string, { description: string }>, description: string) => ({
  if: { properties: { type: { const: type } } },
  then: { properties: { config: { type: "object", description, properties: config } } },
});

/** A few sections of the server's schema, in its forms. */
const SCHEMA = {
  $ref: "#/$defs/job",
  $defs: {
    job: {
      type: "object",
      properties: {
        kind: { enum: ["Job"] },
        name: { type: "string", description: "Runs of one name are a `history`." },
        mode: { enum: ["streaming", "batch"], default: "streaming" },
        sources: { type: "object", additionalProperties: { $ref: "#/$defs/node" } },
        sinks: { type: "object", additionalProperties: { $ref: "#/$defs/node" } },
        routes: { type: "array", items: { $ref: "#/$defs/route" } },
        tests: { type: "array", items: { $ref: "#/$defs/test" } },
      },
    },
    node: {
      type: "object",
      properties: {
        type: { type: "string", enum: ["stream", "file"] },
        inputs: NAMES,
        config: { description: "The keys of the type." },
        ack_timeout: { type: "string", default: "60s" },
      },
      allOf: [
        ofType("stream", { topic: { description: "The topic." } }, "Reads a topic."),
        ofType("file", { path: { description: "The file." } }, "Reads a file."),
      ],
    },
    route: {
      type: "object",
      properties: { from: { type: "string" }, to: NAMES, stop: { type: "boolean", default: false } },
    },
    test: {
      type: "object",
      properties: { name: { type: "string" }, inject: { type: "object", additionalProperties: { type: "array" } } },
    },
  },
};

const NODES = "sources:\n  in: { type: stream }\nsinks:\n  out: { inputs: in }\n";

/** The options at the bar, as texts. */
function at(marked: string, asked = true): string[] | null {
  const caret = marked.indexOf("|");
  const words = { schema: SCHEMA, topics: ["orders", "readings"] };
  const completion = completeJob(marked.replace("|", ""), caret, words, asked);
  return completion === null ? null : completion.options.map(({ text }) => text);
}

describe("the completion of a document", () => {
  it.each<[string, string[] | null]>([
    ["|", ["kind", "name", "mode", "sources", "sinks", "routes", "tests"]],
    ["name: a\nm|", ["mode"]],
    ["m|\nname: a", ["mode"]],
    ["mode: |", ["streaming", "batch"]],
    ["mode: b|", ["batch"]],
    ["name: |", null],
    ["# m|", null],
    ["sources:\n  in:\n    |", ["type", "inputs", "config", "ack_timeout"]],
    ["sources:\n  in:\n    type: |", ["stream", "file"]],
    ["sources:\n  in: { t| }", ["type"]],
    ["sources:\n  in: { type: f|", ["file"]],
    ["sources:\n  in: { type: file, config: { |", ["path"]],
    ["sources:\n  in:\n    type: stream\n    config:\n      |", ["topic"]],
    ["sources:\n  in:\n    config:\n      |\n    type: stream", ["topic"]],
    ["sources:\n  in: { type: stream, config: { topic: |", ["orders", "readings"]],
    ["sources:\n  in: { ack_timeout: |", ["60s"]],
    ["sources:\n  |", null],
    [`${NODES}routes:\n  - |`, ["from", "to", "stop"]],
    [`${NODES}routes:\n  - from: in\n    |`, ["to", "stop"]],
    [`${NODES}routes:\n  - { from: |`, ["in", "out", "all"]],
    [`${NODES}routes:\n  - { to: [|`, ["out", "all", "none"]],
    [`${NODES}routes:\n  - { stop: |`, ["true", "false"]],
    [`${NODES}  other:\n    inputs: [|`, ["in"]],
    [`${NODES}tests:\n  - inject: { |`, ["in", "out"]],
    [`${NODES}tests:\n  - inject:\n      in: []\n      |`, ["out"]],
    ['{"mode":"|"}', ["streaming", "batch"]],
    ['{"mo|"}', ["mode"]],
    ["constructor:\n  |", null],
  ])("at %j is %j", (marked, expected) => {
    expect(at(marked)).toEqual(expected);
  });

  it("opens by itself only where a word has begun that is not whole", () => {
    expect(at("mode: |", false)).toBeNull();
    expect(at("mode: st|", false)).toEqual(["streaming"]);
    expect(at("mode: streaming|", false)).toBeNull();
  });

  it("says what a word means, and puts a colon behind a key", () => {
    const words = { schema: SCHEMA, topics: [] };
    const [key] = completeJob("na", 2, words, true)?.options ?? [];
    expect(key).toEqual({ kind: "key", text: "name", detail: "Runs of one name are a history.", tail: ": " });
    const [section] = completeJob("so", 2, words, true)?.options ?? [];
    expect(section?.tail).toBe(":");
    const [quoted] = completeJob('{"na"}', 4, words, true)?.options ?? [];
    expect(quoted?.tail).toBe("");
    const [type] = completeJob("sources: { in: { type: st", 25, words, true)?.options ?? [];
    expect(type).toEqual({ kind: "value", text: "stream", detail: "Reads a topic." });
    expect(completeJob("na", 2, { schema: null, topics: [] }, true)).toBeNull();
  });
});
