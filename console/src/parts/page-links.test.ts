import { describe, expect, it } from "vitest";
import { fitting } from "./page-links";

describe("links in a bar", () => {
  it.each([
    [300, 3],
    [299, 2],
    [250, 2],
    [249, 1],
    [149, 0],
    [0, 0],
  ])("that has %d px are %d, with the menu of the others behind them", (room, count) => {
    expect(fitting([100, 100, 100], 50, room)).toBe(count);
  });
});
