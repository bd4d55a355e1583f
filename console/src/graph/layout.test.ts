import { describe, expect, it } from "vitest";
import { type Box, type Edge, type Layout, arrowHead, layout, linePath, WITH_FIGURES } from "./layout";

/** `a>b c>d` as edges. */
function edges(text: string): Edge[] {
  return text
    .split(" ")
    .filter((part) => part !== "")
    .map((part) => {
      const [from = "", to = ""] = part.split(">");
      return { from, to };
    });
}

function laid(text: string): Layout {
  const all = edges(text);
  return layout([...new Set(all.flatMap(({ from, to }) => [from, to]))], all, WITH_FIGURES);
}

function boxOf({ boxes }: Layout, name: string): Box {
  const found = boxes.find((box) => box.name === name);
  if (found === undefined) throw new Error(`there is no box ${name}`);
  return found;
}

function overlapping({ boxes }: Layout): string[] {
  return boxes.flatMap((a, index) =>
    boxes
      .slice(index + 1)
      .filter((b) => a.x === b.x && a.y < b.y + b.height && b.y < a.y + a.height)
      .map((b) => `${a.name} and ${b.name}`),
  );
}

describe("the layout of a job's graph", () => {
  const SHAPES = [
    "in>a a>out",
    "in>a in>b a>out b>out in>out",
    "one>a two>a three>b a>c b>c c>x c>y c>z a>dead b>dead c>dead",
    "in>a a>b b>c c>d d>out in>early a>early b>early",
  ];

  it.each(SHAPES)("has no overlapping boxes, and every edge goes right: %s", (shape) => {
    const drawn = laid(shape);
    expect(overlapping(drawn)).toEqual([]);
    for (const { from, to, points } of drawn.lines) {
      expect([from, to, boxOf(drawn, from).x < boxOf(drawn, to).x]).toEqual([from, to, true]);
      const xs = points.map(({ x }) => x);
      expect(xs).toEqual(xs.toSorted((a, b) => a - b));
    }
    for (const { x, y, height } of drawn.boxes) {
      expect(x >= 0 && y >= 0 && x + WITH_FIGURES.boxWidth <= drawn.width && y + height <= drawn.height).toBe(true);
    }
  });

  it.each(SHAPES)("has all sinks in the last layer and all sources in the first: %s", (shape) => {
    const drawn = laid(shape);
    const all = edges(shape);
    const xs = drawn.boxes.map(({ x }) => x);
    for (const { name, x } of drawn.boxes) {
      if (!all.some(({ from }) => from === name)) expect([name, x]).toEqual([name, Math.max(...xs)]);
      if (!all.some(({ to }) => to === name)) expect([name, x]).toEqual([name, Math.min(...xs)]);
    }
  });

  it("leads an edge that passes a layer beside the boxes of that layer", () => {
    const drawn = laid("in>a a>out in>out");
    const passing = drawn.lines.find(({ from, to }) => from === "in" && to === "out");
    const middle = boxOf(drawn, "a");
    const inside = (passing?.points ?? []).filter(
      ({ x, y }) =>
        x >= middle.x && x <= middle.x + WITH_FIGURES.boxWidth && y > middle.y && y < middle.y + middle.height,
    );
    expect(passing?.points.length).toBe(4);
    expect(inside).toEqual([]);
  });

  it("orders boxes so that edges do not cross where they need not", () => {
    const drawn = laid("in>a in>b a>x b>y a>x");
    expect(boxOf(drawn, "a").y < boxOf(drawn, "b").y).toBe(boxOf(drawn, "x").y < boxOf(drawn, "y").y);
    const swapped = layout(["p", "q", "x", "y"], edges("p>y q>x"), WITH_FIGURES);
    expect(boxOf(swapped, "p").y < boxOf(swapped, "q").y).toBe(boxOf(swapped, "y").y < boxOf(swapped, "x").y);
  });

  it("gives each edge of a box a place of its own", () => {
    const drawn = laid("in>a in>b in>c in>d in>e in>f a>out b>out c>out d>out e>out f>out");
    const ends = drawn.lines.filter(({ to }) => to === "out").map(({ points }) => points.at(-1)?.y ?? 0);
    expect(new Set(ends).size).toBe(6);
    const out = boxOf(drawn, "out");
    expect(ends.every((y) => y > out.y && y < out.y + out.height)).toBe(true);
  });

  it("draws a single node, and survives edges that run in a circle or lead nowhere", () => {
    expect(layout(["alone"], [], WITH_FIGURES).boxes).toHaveLength(1);
    expect(laid("a>b b>a").boxes).toHaveLength(2);
    expect(layout(["a", "b"], edges("a>b a>gone b>b"), WITH_FIGURES).lines).toHaveLength(1);
    expect(layout([], [], WITH_FIGURES)).toMatchObject({ boxes: [], lines: [] });
  });

  it("draws an edge as a curve that ends straight, with a head at its end", () => {
    const points = [
      { x: 0, y: 10 },
      { x: 124, y: 50 },
    ];
    expect(linePath(points, WITH_FIGURES)).toBe("M0 10 C29 10 29 50 58 50 L124 50");
    expect(arrowHead(points)).toBe("M124 50 l-7 -3.5 v7 z");
    expect(linePath([], WITH_FIGURES) + arrowHead([])).toBe("");
  });
});
