import { describe, expect, it } from "vitest";
import type { Json } from "../api/decode";
import type { SchemaField } from "../api/schema";
import { examplesOf, FIRST_EXAMPLE } from "./examples";

function field(path: string, type: string, examples: Json[] = [], present = 1): SchemaField {
  return { path, types: new Map([[type, 10]]), present, examples };
}

const WEATHER = [
  field("$key", "STRING", ["EWR"]),
  field("$header['qos']", "STRING", ["0"]),
  field("origin", "STRING", ["EWR", "JFK"]),
  field("time", "STRING", ["2013-01-05T05:00:00Z"]),
  field("temp", "DOUBLE", [60, 20, 40]),
  field("wind.speed", "LONG", [7]),
  field("wind", "MAP"),
  field("seldom", "DOUBLE", [1], 0.1),
];

/** The texts of all examples in one. */
const texts = (...asked: Parameters<typeof examplesOf>): string =>
  examplesOf(...asked)
    .map(({ text }) => text)
    .join("\n");

describe("examples", () => {
  it("name fields that the records have, and no others", () => {
    const all = texts({ topic: null, fields: WEATHER });
    for (const part of [
      "SELECT $key AS device, temp, wind.speed, origin\n",
      "WHERE temp > 40",
      "AVG(temp)",
      "FREQ(temp,",
    ]) {
      expect(all).toContain(part);
    }
    for (const absent of ["humid", "seldom", "$header", "time,", "wind,"]) expect(all).not.toContain(absent);
  });

  it("of a topic ask that topic, and give results without being stopped", () => {
    const fields = [field("$key", "STRING"), field("item", "STRING", ["bolt"]), field("price", "DOUBLE", [2.5, 0.5])];
    const examples = examplesOf({ topic: 'the "orders"', fields });
    for (const { text } of examples) expect(text).toContain('FROM "the ""orders"""');
    expect(examples.map(({ title }) => title)).toContain("Mean price of each item");
    for (const { text } of examples) {
      if (/COUNT|TOP|FREQ/.test(text)) expect(text).toContain("WINDOWING");
    }
  });

  it.each([
    [[60, 20, 40], "40"],
    [[98.06], "98"],
    [[1234.5, 1236], "1235"],
    [[0.001, 0.002], "0.0015"],
    [[], "0"],
  ])("compare %j with %s, which is amid them", (values, limit) => {
    expect(texts({ topic: null, fields: [field("v", "DOUBLE", values)] })).toContain(`WHERE v > ${limit}\n`);
  });

  it("of one more topic stand at the end", () => {
    expect(examplesOf({ topic: null, fields: WEATHER }, "orders").at(-1)).toEqual({
      title: "Everything in orders",
      text: 'SELECT *\nFROM "orders"\nLIMIT 500',
    });
  });

  it("without any records name nothing that only records could have", () => {
    const examples = examplesOf({ topic: null, fields: [] });
    expect(examples[0]).toBe(FIRST_EXAMPLE);
    expect(examples).toHaveLength(3);
    expect(texts({ topic: null, fields: [] })).not.toMatch(/WHERE|AVG|FREQ/);
  });

  it("do not compare with a field that is a number only sometimes", () => {
    const mixed: SchemaField = {
      path: "v",
      types: new Map([
        ["LONG", 5],
        ["STRING", 5],
      ]),
      present: 1,
      examples: [1],
    };
    expect(texts({ topic: null, fields: [mixed] })).not.toContain("v >");
  });
});
