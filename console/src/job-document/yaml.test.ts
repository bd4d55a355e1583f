import { describe, expect, it } from "vitest";
import { readTree, textOf, valueOf } from "./tree";
import { documentCopy } from "./yaml";

describe("the copy of a document", () => {
  it("has nodes and tests set apart, short objects in one line, and no id", () => {
    const document = {
      version: 1,
      kind: "Job",
      id: "one-of-a-kind",
      name: "warm",
      labels: { team: "weather" },
      sources: { readings: { type: "stream", config: { topic: "readings", start: { "0": 17 } } } },
      transforms: {
        celsius: { type: "map", inputs: ["readings"], select: `*, (temp - 32) / 1.8 AS celsius${", a".repeat(20)}` },
      },
      sinks: {},
      routes: [{ from: "celsius", on_error: true, to: ["dead"], stop: true }],
      tests: [{ name: "it's: warm", inject: { readings: [{ $key: "d1", temp: '{"t":1}', text: "on" }] } }],
    };
    expect(documentCopy(JSON.stringify(document), null)).toBe(`version: 1
kind: Job
name: warm
labels: { team: weather }

sources:
  readings:
    type: stream
    config: { topic: readings, start: { "0": 17 } }

transforms:
  celsius:
    type: map
    inputs: [readings]
    select: "*, (temp - 32) / 1.8 AS celsius${", a".repeat(20)}"
sinks: {}

routes:
  - { from: celsius, on_error: true, to: [dead], stop: true }

tests:
  - name: "it's: warm"
    inject: { readings: [{ $key: d1, temp: '{"t":1}', text: "on" }] }
`);
  });

  it("goes on from a job by its id, which stands behind the name, or from none", () => {
    const document = { version: 1, name: "sums", sources: {}, resume_from: { job: "older", map: { a: "b" } } };
    expect(documentCopy(JSON.stringify(document), "0c1f-2")).toBe(
      'version: 1\nname: sums\nresume_from: "0c1f-2"\nsources: {}\n',
    );
    expect(documentCopy(JSON.stringify(document), null)).toBe("version: 1\nname: sums\nsources: {}\n");
    expect(documentCopy("{}", "j1")).toBe("resume_from: j1\n");
  });

  it("keeps the digits of numbers", () => {
    expect(documentCopy('{"a":18446744073709551615,"b":25.0}', null)).toBe("a: 18446744073709551615\nb: 25.0\n");
  });

  it.each([
    "one\ntwo\n",
    "one\n\n  two",
    "one\r\ntwo",
    " one\ntwo",
    "one\n\n",
    "1",
    "1e3",
    "true",
    "",
    "- a",
    "a: b",
    "a #b",
    "5m",
    "ä",
  ])("keeps the text %j", (text) => {
    const copy = documentCopy(JSON.stringify({ doc: text, after: "x" }), null);
    expect(valueOf(readTree(copy), "after")).toEqual({ kind: "scalar", text: "x" });
    const isBlock = copy.startsWith("doc: |");
    if (!isBlock) expect(textOf(valueOf(readTree(copy), "doc"))).toBe(text);
    expect(isBlock).toBe(["one\ntwo\n", "one\n\n  two"].includes(text));
  });
});
