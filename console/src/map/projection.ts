/**
 * Web Mercator, and the window through which a map looks at it.
 *
 * World coordinates: x and y from 0 to 1, from 180° west and about 85° north. A zoom of z shows the world
 * `256 * 2^z` pixels wide.
 */
import type { Point } from "../api/entities";

export interface View {
  /** World coordinates of the middle of the map. */
  x: number;
  y: number;
  zoom: number;
}

export interface Size {
  width: number;
  height: number;
}

export const ZOOM_MAX = 14;
const LATITUDE_MAX = 85.0511;
const EARTH_CIRCUMFERENCE_M = 40_075_017;

export function toWorld([longitude, latitude]: Point): [x: number, y: number] {
  const bounded = Math.max(-LATITUDE_MAX, Math.min(LATITUDE_MAX, latitude));
  const sine = Math.sin((bounded * Math.PI) / 180);
  return [longitude / 360 + 0.5, 0.5 - Math.log((1 + sine) / (1 - sine)) / (4 * Math.PI)];
}

export function toPoint(x: number, y: number): Point {
  const latitude = (Math.atan(Math.sinh((0.5 - y) * 2 * Math.PI)) * 180) / Math.PI;
  return [(x - 0.5) * 360, latitude];
}

export function worldPixels(zoom: number): number {
  return 256 * 2 ** zoom;
}

export function toPixel(view: View, size: Size, x: number, y: number): [left: number, top: number] {
  const scale = worldPixels(view.zoom);
  return [(x - view.x) * scale + size.width / 2, (y - view.y) * scale + size.height / 2];
}

export function fromPixel(view: View, size: Size, left: number, top: number): [x: number, y: number] {
  const scale = worldPixels(view.zoom);
  return [view.x + (left - size.width / 2) / scale, view.y + (top - size.height / 2) / scale];
}

/** The nearest view that keeps the world on the map. */
export function bounded(view: View, size: Size): View {
  const zoomMin = Math.log2(Math.max(size.width, 64) / 256);
  const zoom = Math.max(zoomMin, Math.min(ZOOM_MAX, view.zoom));
  const inside = (middle: number, pixels: number): number => {
    const half = Math.min(0.5, pixels / 2 / worldPixels(zoom));
    return Math.max(half, Math.min(1 - half, middle));
  };
  return { x: inside(view.x, size.width), y: inside(view.y, size.height), zoom };
}

export function panned(view: View, size: Size, right: number, down: number): View {
  const scale = worldPixels(view.zoom);
  return bounded({ ...view, x: view.x - right / scale, y: view.y - down / scale }, size);
}

/** Zoomed by `steps`, with what lies under the pixel (left, top) staying there. */
export function zoomed(view: View, size: Size, steps: number, left: number, top: number): View {
  const [x, y] = fromPixel(view, size, left, top);
  const { zoom } = bounded({ ...view, zoom: view.zoom + steps }, size);
  const scale = worldPixels(zoom);
  const moved = { x: x - (left - size.width / 2) / scale, y: y - (top - size.height / 2) / scale, zoom };
  return bounded(moved, size);
}

/** Room around the outermost points, so that their labels fit. */
const MARGIN_PX = 64;
/** A lone point is shown with its surroundings, not with its street. */
const FIT_ZOOM_MAX = 9.5;

/** The closest view that shows all `points`; the world if there are none. */
export function fitting(points: readonly Point[], size: Size): View {
  if (points.length === 0) return bounded({ x: 0.5, y: 0.44, zoom: -10 }, size);
  const world = points.map(toWorld);
  const xs = world.map(([x]) => x);
  const ys = world.map(([, y]) => y);
  const [west, east] = [Math.min(...xs), Math.max(...xs)];
  const [north, south] = [Math.min(...ys), Math.max(...ys)];
  const room = (pixels: number): number => Math.max(32, pixels - 2 * MARGIN_PX);
  const scale = Math.min(
    room(size.width) / Math.max(east - west, 1e-9),
    room(size.height) / Math.max(south - north, 1e-9),
  );
  const zoom = Math.min(FIT_ZOOM_MAX, Math.log2(scale / 256));
  return bounded({ x: (west + east) / 2, y: (north + south) / 2, zoom }, size);
}

/** The longest round distance (1, 2 or 5 times a power of ten) that is at most `pixels_max` wide at the middle. */
export function scaleBar(view: View, pixels_max: number): { pixels: number; label: string } {
  const [, latitude] = toPoint(view.x, view.y);
  const metresPerPixel = (EARTH_CIRCUMFERENCE_M * Math.cos((latitude * Math.PI) / 180)) / worldPixels(view.zoom);
  const longest_m = metresPerPixel * pixels_max;
  const power = 10 ** Math.floor(Math.log10(longest_m));
  const step = [5, 2, 1].find((candidate) => candidate * power <= longest_m) ?? 1;
  const length_m = step * power;
  return {
    pixels: length_m / metresPerPixel,
    label: length_m >= 1000 ? `${length_m / 1000} km` : `${length_m} m`,
  };
}

const GRATICULE_STEPS_DEG = [90, 30, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01];

/** The finest graticule whose meridians stay a comfortable distance apart. */
export function graticuleStep(zoom: number): number {
  const pixelsPerDegree = worldPixels(zoom) / 360;
  return GRATICULE_STEPS_DEG.findLast((step) => step * pixelsPerDegree >= 70) ?? 90;
}
