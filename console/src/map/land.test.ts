import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { describe, expect, it } from "vitest";
import { decodeLand } from "./land";
import { toWorld } from "./projection";

const outlines = createRequire(import.meta.url).resolve("world-atlas/countries-50m.json");

/** Whether a place is inside an odd number of outlines, of which some go on beyond the edge of the world. */
function onLand(lines: ReturnType<typeof decodeLand>["outlines"], longitude: number, latitude: number): boolean {
  const [inWorld, y] = toWorld([longitude, latitude]);
  let inside = false;
  for (const { coordinates, west, east } of lines) {
    const x = [inWorld, inWorld - 1, inWorld + 1].find((turned) => west <= turned && turned <= east);
    if (x === undefined) continue;
    for (let index = 0; index + 3 < coordinates.length; index += 2) {
      const [x0 = 0, y0 = 0, x1 = 0, y1 = 0] = coordinates.subarray(index, index + 4);
      if (y0 > y !== y1 > y && x < ((x1 - x0) * (y - y0)) / (y1 - y0) + x0) inside = !inside;
    }
  }
  return inside;
}

describe("the bundled outlines", () => {
  const land = decodeLand(JSON.parse(readFileSync(outlines, "utf8")) as Parameters<typeof decodeLand>[0]);

  it.each([
    ["Denver", -104.99, 39.74, true],
    ["Madrid", -3.7, 40.42, true],
    ["Alice Springs", 133.87, -23.7, true],
    ["Siberia west of the 180th meridian", 175, 66.5, true],
    ["Siberia east of it", -175, 66.5, true],
    ["the South Pole station", 0, -84, true],
    ["the middle of the Atlantic", -40, 30, false],
    ["the Bay of Bengal", 88, 15, false],
  ])("say whether %s is on land", (_place, longitude, latitude, expected) => {
    expect(onLand(land.outlines, longitude, latitude)).toBe(expected);
  });

  it("do not cross the world from side to side", () => {
    for (const { coordinates } of land.outlines) {
      for (let index = 2; index < coordinates.length - 6; index += 2) {
        expect(Math.abs((coordinates[index] ?? 0) - (coordinates[index - 2] ?? 0))).toBeLessThan(0.5);
      }
    }
  });

  it("have borders between countries", () => {
    expect(land.borders.length).toBeGreaterThan(100);
  });
});
