import { describe, expect, it } from "vitest";
import { Ring } from "./ring";

describe("a ring", () => {
  it.each([
    [0, [], 0],
    [2, [1, 2], 0],
    [3, [1, 2, 3], 0],
    [4, [2, 3, 4], 1],
    [8, [6, 7, 8], 5],
  ])("of three keeps the newest of %i in order and counts the others", (count, kept, dropped) => {
    const ring = new Ring<number>(3);
    for (let item = 1; item <= count; item += 1) ring.push(item);
    expect(ring.toArray()).toEqual(kept);
    expect(ring.dropped).toBe(dropped);
    expect(ring.pushed).toBe(count);
  });

  it("hands out copies that later pushes do not touch", () => {
    const ring = new Ring<number>(2);
    ring.push(1);
    const copy = ring.toArray();
    ring.push(2);
    ring.push(3);
    expect(copy).toEqual([1]);
  });
});
