import { describe, expect, it } from "vitest";
import type { JsonObject } from "../api/decode";
import { barsOf, extent, GROUPS_MAX } from "./bars";
import type { Row } from "./session";

function rows(...records: JsonObject[]): Row[] {
  return records.map((record, index) => ({ number: index + 1, at_ms: 1000, window: null, record }));
}

describe("bars", () => {
  it("show the last row of each group, in order of arrival", () => {
    const some = rows({ at: "b", n: 1, m: 9 }, { at: "a", n: -2 }, { at: "b", n: 3, m: "no number" });
    expect(barsOf(some, ["n", "m"], ["at"])).toEqual({
      groups: [
        { label: "b", values: [3, null] },
        { label: "a", values: [-2, null] },
      ],
      hidden: 0,
      low: -2,
      high: 3,
    });
  });

  it("show the newest rows if no column distinguishes them", () => {
    const many = rows(...Array.from({ length: GROUPS_MAX + 2 }, (_, n) => ({ n })));
    const { groups, hidden } = barsOf(many, ["n"], []);
    expect([groups[0]?.values, groups.length, hidden]).toEqual([[2], GROUPS_MAX, 2]);
  });

  it("begin at zero, to either side", () => {
    expect(extent(3, { low: -1, high: 3 })).toEqual({ from: 0.25, size: 0.75 });
    expect(extent(-1, { low: -1, high: 3 })).toEqual({ from: 0, size: 0.25 });
    expect(extent(0, { low: 0, high: 0 })).toEqual({ from: 0, size: 0 });
  });
});
