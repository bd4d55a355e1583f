/** Paints one frame of the map. Knows nothing of the page around it. */
import { type Land, type Line } from "./land";
import { fromPixel, graticuleStep, type Size, toPixel, toPoint, toWorld, type View, worldPixels } from "./projection";

export interface Marker {
  key: string;
  label: string;
  /** World coordinates. */
  x: number;
  y: number;
}

export interface Colours {
  water: string;
  land: string;
  shore: string;
  graticule: string;
  text: string;
  halo: string;
  marker: string;
  strong: string;
}

export interface Scene {
  view: View;
  size: Size;
  land: Land | null;
  markers: readonly Marker[];
  /** Keys of the markers to point out. */
  strong: ReadonlySet<string>;
  colours: Colours;
}

const MARKER_RADIUS_PX = 5;
const LABEL_FONT = "12px system-ui, sans-serif";
const GRATICULE_FONT = "10px system-ui, sans-serif";

export function paint(context: CanvasRenderingContext2D, scene: Scene): void {
  const { size, colours, land } = scene;
  context.fillStyle = colours.water;
  context.fillRect(0, 0, size.width, size.height);
  if (land !== null) paintLand(context, scene, land);
  paintGraticule(context, scene);
  paintMarkers(context, scene);
}

function paintLand(context: CanvasRenderingContext2D, scene: Scene, land: Land): void {
  context.beginPath();
  traceAll(context, scene, land.outlines);
  context.fillStyle = scene.colours.land;
  context.fill("evenodd");
  context.strokeStyle = scene.colours.shore;
  context.lineWidth = 1;
  context.stroke();
  context.beginPath();
  traceAll(context, scene, land.borders);
  context.globalAlpha = 0.6;
  context.stroke();
  context.globalAlpha = 1;
}

/** Adds lines to the path, and those that cross the 180th meridian on both sides of the world. */
function traceAll(context: CanvasRenderingContext2D, scene: Scene, lines: readonly Line[]): void {
  for (const line of lines) {
    trace(context, scene, line, 0);
    if (line.west < 0) trace(context, scene, line, 1);
    if (line.east > 1) trace(context, scene, line, -1);
  }
}

/**
 * Adds a line to the path, moved by whole `turns` around the world. Of points that follow each other beyond one edge of the map only the last is kept, which
 * changes nothing on the map: the line between them stays beyond that edge.
 */
function trace(context: CanvasRenderingContext2D, { view, size }: Scene, line: Line, turns: number): void {
  const [west, north] = fromPixel({ ...view, x: view.x - turns }, size, -2, -2);
  const [east, south] = fromPixel({ ...view, x: view.x - turns }, size, size.width + 2, size.height + 2);
  if (line.east < west || line.west > east || line.south < north || line.north > south) return;
  const scale = worldPixels(view.zoom);
  const left = size.width / 2 - (view.x - turns) * scale;
  const top = size.height / 2 - view.y * scale;
  const nearest = 0.6 / scale;
  const { coordinates } = line;
  let side = 0;
  let [lastX, lastY] = [Number.NaN, Number.NaN];
  let [heldX, heldY, holds] = [0, 0, false];
  for (let index = 0; index < coordinates.length; index += 2) {
    const x = coordinates[index] ?? 0;
    const y = coordinates[index + 1] ?? 0;
    const here = x < west ? 1 : x > east ? 2 : y < north ? 3 : y > south ? 4 : 0;
    const near = Math.abs(x - lastX) < nearest && Math.abs(y - lastY) < nearest;
    if (index > 0 && ((here !== 0 && here === side) || near)) {
      [heldX, heldY, holds] = [x, y, true];
      side = here;
      continue;
    }
    if (holds) context.lineTo(heldX * scale + left, heldY * scale + top);
    if (index === 0) context.moveTo(x * scale + left, y * scale + top);
    else context.lineTo(x * scale + left, y * scale + top);
    [lastX, lastY, side, holds] = [x, y, here, false];
  }
  if (holds) context.lineTo(heldX * scale + left, heldY * scale + top);
}

function paintGraticule(context: CanvasRenderingContext2D, { view, size, colours }: Scene): void {
  const step = graticuleStep(view.zoom);
  const [west, north] = toPoint(...fromPixel(view, size, 0, 0));
  const [east, south] = toPoint(...fromPixel(view, size, size.width, size.height));
  context.strokeStyle = colours.graticule;
  context.fillStyle = colours.text;
  context.font = GRATICULE_FONT;
  context.textBaseline = "top";
  context.lineWidth = 1;
  context.globalAlpha = 0.7;
  for (let index = Math.ceil(Math.max(west, -180) / step); index * step <= Math.min(east, 180); index += 1) {
    const [left] = toPixel(view, size, ...toWorld([index * step, 0]));
    rule(context, Math.round(left) + 0.5, 0, Math.round(left) + 0.5, size.height);
    context.fillText(degrees(index * step, step, "E", "W"), left + 4, 4);
  }
  for (let index = Math.ceil(Math.max(south, -80) / step); index * step <= Math.min(north, 80); index += 1) {
    const [, top] = toPixel(view, size, ...toWorld([0, index * step]));
    rule(context, 0, Math.round(top) + 0.5, size.width, Math.round(top) + 0.5);
    if (top > 24) context.fillText(degrees(index * step, step, "N", "S"), 4, top + 3);
  }
  context.globalAlpha = 1;
}

function rule(context: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

export function degrees(value: number, step: number, positive: string, negative: string): string {
  const digits = step >= 1 ? 0 : step >= 0.1 ? 1 : 2;
  const size = Math.abs(value).toFixed(digits);
  return Number(size) === 0 ? "0°" : `${size}° ${value > 0 ? positive : negative}`;
}

interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

function paintMarkers(context: CanvasRenderingContext2D, scene: Scene): void {
  const { view, size, colours, strong } = scene;
  // The ones pointed out come last, so that they lie on top; their labels go first, so that they have room.
  const placed = scene.markers
    .map((marker) => {
      const [left, top] = toPixel(view, size, marker.x, marker.y);
      return { marker, left, top, strong: strong.has(marker.key) };
    })
    .filter(({ left, top }) => left > -20 && top > -20 && left < size.width + 20 && top < size.height + 20)
    .sort((a, b) => Number(a.strong) - Number(b.strong));
  for (const { left, top, strong: isStrong } of placed) {
    context.beginPath();
    context.arc(left, top, isStrong ? MARKER_RADIUS_PX + 3 : MARKER_RADIUS_PX, 0, 2 * Math.PI);
    context.fillStyle = isStrong ? colours.strong : colours.marker;
    context.fill();
    context.lineWidth = 2;
    context.strokeStyle = colours.halo;
    context.stroke();
  }
  context.font = LABEL_FONT;
  context.textBaseline = "middle";
  const taken: Box[] = [];
  for (const { marker, left, top, strong: isStrong } of placed.reverse()) {
    const width = context.measureText(marker.label).width;
    const fitsRight = left + 12 + width <= size.width;
    const start = fitsRight ? left + 12 : left - 12 - width;
    const box = { left: start - 2, top: top - 8, right: start + width + 2, bottom: top + 8 };
    if (!isStrong && taken.some((other) => overlap(box, other))) continue;
    taken.push(box);
    context.lineWidth = 3;
    context.lineJoin = "round";
    context.strokeStyle = colours.halo;
    context.strokeText(marker.label, start, top);
    context.fillStyle = colours.text;
    context.fillText(marker.label, start, top);
  }
}

function overlap(a: Box, b: Box): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

/** The marker nearest to a pixel, if one is close enough to be meant. */
export function markerAt(scene: Pick<Scene, "view" | "size" | "markers">, left: number, top: number): Marker | null {
  const REACH_PX = 14;
  let best: Marker | null = null;
  let bestDistance = REACH_PX;
  for (const marker of scene.markers) {
    const [x, y] = toPixel(scene.view, scene.size, marker.x, marker.y);
    const distance = Math.hypot(x - left, y - top);
    if (distance < bestDistance) [best, bestDistance] = [marker, distance];
  }
  return best;
}
