import { describe, expect, it } from "vitest";
import type { Point } from "../api/entities";
import {
  bounded,
  fitting,
  fromPixel,
  graticuleStep,
  panned,
  scaleBar,
  toPixel,
  toPoint,
  toWorld,
  worldPixels,
  zoomed,
  ZOOM_MAX,
} from "./projection";

const SIZE = { width: 500, height: 400 };
const NEW_YORK: readonly Point[] = [
  [-74.1687, 40.6925],
  [-73.7789, 40.6398],
  [-73.8726, 40.7772],
];

describe("the projection", () => {
  it.each<Point>([
    [0, 0],
    [-74, 40.7],
    [180, 85],
    [-180, -85],
    [151.2, -33.9],
  ])("of %d, %d turns back", (longitude, latitude) => {
    const [x, y] = toPoint(...toWorld([longitude, latitude]));
    expect(x).toBeCloseTo(longitude, 9);
    expect(y).toBeCloseTo(latitude, 9);
  });

  it("keeps the poles on the map", () => {
    expect(toWorld([0, 90])[1]).toBeCloseTo(0, 5);
    expect(toWorld([0, -90])[1]).toBeCloseTo(1, 5);
  });
});

describe("a view", () => {
  const view = fitting(NEW_YORK, SIZE);

  it("fits all points, with room around them", () => {
    for (const point of NEW_YORK) {
      const [left, top] = toPixel(view, SIZE, ...toWorld(point));
      expect(left).toBeGreaterThan(30);
      expect(left).toBeLessThan(SIZE.width - 30);
      expect(top).toBeGreaterThan(30);
      expect(top).toBeLessThan(SIZE.height - 30);
    }
  });

  it("without points is the world, with one point its surroundings", () => {
    expect(worldPixels(fitting([], SIZE).zoom)).toBeLessThan(2 * SIZE.width);
    expect(fitting([[2, 48]], SIZE).zoom).toBeLessThan(10);
  });

  it("zooms around the pointer", () => {
    const under = fromPixel(view, SIZE, 100, 300);
    const closer = zoomed(view, SIZE, 1.5, 100, 300);
    expect(closer.zoom).toBeCloseTo(view.zoom + 1.5, 9);
    const [left, top] = toPixel(closer, SIZE, ...under);
    expect(left).toBeCloseTo(100, 4);
    expect(top).toBeCloseTo(300, 4);
  });

  it("follows the hand", () => {
    const [x, y] = fromPixel(view, SIZE, 250, 200);
    const [left, top] = toPixel(panned(view, SIZE, 30, -20), SIZE, x, y);
    expect(left).toBeCloseTo(280, 4);
    expect(top).toBeCloseTo(180, 4);
  });

  it("never loses the world", () => {
    expect(bounded({ x: 7, y: -3, zoom: 99 }, SIZE)).toMatchObject({ zoom: ZOOM_MAX });
    const corner = bounded({ x: 2, y: -3, zoom: 4 }, SIZE);
    expect(toPixel(corner, SIZE, 1, 0)).toEqual([SIZE.width, 0]);
    expect(bounded({ x: 0.5, y: 0.1, zoom: -9 }, { width: 300, height: 900 }).y).toBe(0.5);
  });
});

describe("the scale", () => {
  it("is a round distance that fits", () => {
    const equator = { x: 0.5, y: 0.5, zoom: 0 };
    expect(scaleBar(equator, 100)).toMatchObject({ label: "10000 km" });
    const { pixels, label } = scaleBar(fitting(NEW_YORK, SIZE), 110);
    expect(pixels).toBeLessThanOrEqual(110);
    expect(label).toMatch(/^[125]0* km$/);
    expect(scaleBar({ ...equator, zoom: ZOOM_MAX }, 100).label).toBe("500 m");
  });

  it("has meridians neither crowded nor far apart", () => {
    expect(graticuleStep(0)).toBe(90);
    for (let zoom = 0.5; zoom < 13; zoom += 0.5) {
      const pixels = (graticuleStep(zoom) * worldPixels(zoom)) / 360;
      expect(pixels).toBeGreaterThanOrEqual(70);
      expect(pixels).toBeLessThan(300);
    }
  });
});
