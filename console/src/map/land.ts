/**
 * Outlines of land and borders: Natural Earth's public-domain data, bundled with the console.
 *
 * Two levels: 1:50 million for the world, 1:10 million for a region, each loaded when first wanted.
 */
import { feature, mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import region from "world-atlas/land-10m.json?url";
import world from "world-atlas/countries-50m.json?url";
import { toWorld } from "./projection";

/**
 * A closed or open line in world coordinates: x0, y0, x1, y1 … and the box around it.
 *
 * A line that crosses the 180th meridian goes on beyond x = 0 or x = 1; the map paints it once more on the other side.
 */
export interface Line {
  coordinates: Float64Array;
  west: number;
  east: number;
  north: number;
  south: number;
}

export interface Land {
  outlines: Line[];
  borders: Line[];
}

export type Detail = "world" | "region";

/** From this zoom on the coarser outlines look coarse. */
const REGION_ZOOM = 5;

export function detailAt(zoom: number): Detail {
  return zoom >= REGION_ZOOM ? "region" : "world";
}

type LandTopology = Topology<{ land: GeometryCollection; countries?: GeometryCollection }>;

const loads = new Map<Detail, Promise<Land>>();

export function loadLand(detail: Detail): Promise<Land> {
  let load = loads.get(detail);
  if (load === undefined) {
    load = fetchLand(detail === "world" ? world : region);
    loads.set(detail, load);
    // A load that failed is tried again by whoever asks next.
    load.catch(() => loads.delete(detail));
  }
  return load;
}

async function fetchLand(address: string): Promise<Land> {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`outlines: ${answer.status}`);
  return decodeLand((await answer.json()) as LandTopology);
}

/** The bundled file is our own asset, so its shape is known. */
export function decodeLand(topology: LandTopology): Land {
  const rings: number[][][] = [];
  for (const { geometry } of feature(topology, topology.objects.land).features) {
    if (geometry.type === "Polygon") rings.push(...geometry.coordinates);
    if (geometry.type === "MultiPolygon") rings.push(...geometry.coordinates.flat());
  }
  const outlines = rings.filter((ring) => !isPole(ring)).map(line);
  const { countries } = topology.objects;
  const borders = countries ? mesh(topology, countries, (a, b) => a !== b).coordinates.map(line) : [];
  return { outlines, borders };
}

/** Antarctica is closed below what any view shows, not along the pole, which is nowhere on this map. */
const BEYOND_POLE_Y = 2;
const POLE_LATITUDE = -89.9;

function isPole(positions: number[][]): boolean {
  return positions.every(([, latitude = 0]) => latitude < POLE_LATITUDE);
}

function line(positions: number[][]): Line {
  const points: [x: number, y: number][] = [];
  let turns = 0;
  for (const [longitude = 0, latitude = 0] of positions) {
    const [x, y] = toWorld([longitude, latitude]);
    const before = points.at(-1);
    if (before !== undefined) turns += Math.round(before[0] - (x + turns));
    points.push([x + turns, y]);
  }
  const [first, last] = [points.at(0), points.at(-1)];
  // An outline that ends a whole turn from where it began runs around the south pole.
  if (first && last && Math.abs(first[0] - last[0]) > 0.5) {
    points.push([last[0], BEYOND_POLE_Y], [first[0], BEYOND_POLE_Y], first);
  }
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [west, east] = extent(xs);
  const [north, south] = extent(ys);
  return { coordinates: Float64Array.from(points.flat()), west, east, north, south };
}

function extent(values: readonly number[]): [number, number] {
  return values.reduce<[number, number]>(
    ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
    [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
  );
}
