import { describe, expect, it } from "vitest";
import { sizeOf, spanOf } from "./amount";

describe("an amount", () => {
  it.each<[string, number | null]>([
    ["1000", 1_000],
    ["64 MiB", 67_108_864],
    ["1.5gib", 1_610_612_736],
    [" 8 b ", 8],
    ["64 MB", null],
    ["-1", null],
    ["many", null],
    ["", null],
  ])("of bytes: %s", (text, expected) => {
    expect(sizeOf(text)).toBe(expected);
  });

  it.each<[string, number | null]>([
    ["1500", 1_500],
    ["30 s", 30_000],
    ["5m", 300_000],
    ["7d", 604_800_000],
    ["1 week", null],
  ])("of time: %s", (text, expected) => {
    expect(spanOf(text)).toBe(expected);
  });
});
