import { describe, expect, it } from "vitest";
import { rangeRequest } from "./range";

const NOW_MS = Date.parse("2026-01-31T12:00:00Z");

describe("the range of a query", () => {
  it.each([
    ["", "", {}],
    ["earliest", "now", { from: "earliest", until: "now" }],
    ["now", "never", { from: "now", until: "never" }],
    ["2h", "", { from: { time_ms: NOW_MS - 7_200_000 } }],
    [" 1.5 d ", "30m", { from: { time_ms: NOW_MS - 129_600_000 }, until: { time_ms: NOW_MS - 1_800_000 } }],
    ["2026-01-31T11:00:00Z", "", { from: { time_ms: NOW_MS - 3_600_000 } }],
  ])("from %j until %j is what the server takes", (from, until, expected) => {
    expect(rangeRequest({ from, until }, NOW_MS)).toEqual(expected);
  });

  it.each([
    ["yesterday", "", '"yesterday" is no place to begin'],
    ["never", "", '"never" is no place to begin'],
    ["", "earliest", '"earliest" is no place to end'],
    ["2026-13-01", "", '"2026-13-01" is no place to begin'],
  ])("from %j until %j is told to be none", (from, until, told) => {
    expect(rangeRequest({ from, until }, NOW_MS)).toContain(told);
  });
});
