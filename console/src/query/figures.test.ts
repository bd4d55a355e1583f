import { describe, expect, it } from "vitest";
import type { JsonObject } from "../api/decode";
import type { Row } from "../live/session";
import { figuresOf, figureText } from "./figures";

const row = (record: JsonObject): Row => ({ number: 1, at_ms: 0, window: null, record });

describe("an answer of one row", () => {
  it("is a figure for each field", () => {
    expect(figuresOf(["n", "mean"], [row({ n: 12, mean: 3.5 })])).toEqual([
      { label: "n", value: 12 },
      { label: "mean", value: 3.5 },
    ]);
  });

  it("keeps texts and absent values beside a number", () => {
    expect(figuresOf(["who", "n", "max"], [row({ who: "EWR", n: 1 })])).toEqual([
      { label: "who", value: "EWR" },
      { label: "n", value: 1 },
      { label: "max", value: null },
    ]);
  });

  it.each([
    ["no row", ["n"], []],
    ["two rows", ["n"], [row({ n: 1 }), row({ n: 2 })]],
    ["no number", ["a"], [row({ a: "x" })]],
    ["a list", ["n", "a"], [row({ n: 1, a: [1] })]],
    ["many fields", ["a", "b", "c", "d", "e", "f", "g"], [row({ a: 1 })]],
  ])("is a table with %s", (_what, columns, rows) => {
    expect(figuresOf(columns, rows)).toBeNull();
  });
});

describe("a figure", () => {
  it.each([
    [1234567, "1,234,567"],
    [10.357019999999999, "10.35702"],
    [0.00012, "0.00012"],
    [1.5e-9, "1.5e-9"],
    [0, "0"],
    [-3.25, "-3.25"],
    ["EWR", "EWR"],
    [true, "true"],
    [null, "–"],
  ])("%j is shown as %s", (value, text) => {
    expect(figureText(value)).toBe(text);
  });
});
