import { describe, expect, it } from "vitest";
import type { Json } from "../api/decode";
import type { Point } from "../api/history";
import { type AttributeHistory, changesOf, linesOfHistory, spanOf } from "./attribute-history";

function points(...values: Json[]): Point[] {
  return values.map((value, index) => ({ at_ms: 1000 * (index + 1), value }));
}

function ofPoints(...values: Json[]): AttributeHistory {
  return { kind: "points", points: points(...values) };
}

describe("the history of an attribute", () => {
  it("of numbers is a line, with a gap where there was none", () => {
    expect(linesOfHistory("temp", ofPoints(20, null, 21.5))).toEqual({
      times_s: [1, 2, 3],
      lines: [{ label: "temp", values: [20, null, 21.5] }],
    });
  });

  it("of other values is no line", () => {
    expect(linesOfHistory("state", ofPoints("on", "off", 1))).toBeNull();
    expect(linesOfHistory("state", ofPoints())).toBeNull();
  });

  it("shows each moment once", () => {
    const twice: AttributeHistory = { kind: "points", points: [...points(1), ...points(2)] };
    expect(linesOfHistory("n", twice)).toEqual({ times_s: [1], lines: [{ label: "n", values: [2] }] });
  });

  it("of a long span is the mean between the least and the greatest of each period", () => {
    const periods = [{ from_ms: 60_000, mean: 2, min: 1, max: 3 }];
    expect(linesOfHistory("temp", { kind: "periods", periods })).toEqual({
      times_s: [60],
      lines: [
        { label: "mean", values: [2] },
        { label: "least", values: [1] },
        { label: "greatest", values: [3] },
      ],
    });
  });

  it("tells changes, newest first, and how long a value stayed", () => {
    expect(changesOf(points("a", "a", { b: 1 }, { b: 1 }, "a"))).toEqual([
      { value: "a", from_ms: 5000, count: 1 },
      { value: { b: 1 }, from_ms: 3000, count: 2 },
      { value: "a", from_ms: 1000, count: 2 },
    ]);
    expect(changesOf([])).toEqual([]);
  });

  it.each([
    ["week", "week"],
    ["century", "latest"],
    [null, "latest"],
  ] as const)("in the address %j is the span %s", (text, span) => {
    expect(spanOf(text)).toBe(span);
  });
});
