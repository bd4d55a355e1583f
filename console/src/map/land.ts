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

/** A closed or open line in world coordinates: x0, y0, x1, y1 … and the box around it. */
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
  const outlines: Line[] = [];
  for (const { geometry } of feature(topology, topology.objects.land).features) {
    if (geometry.type === "Polygon") outlines.push(...geometry.coordinates.map(line));
    if (geometry.type === "MultiPolygon") outlines.push(...geometry.coordinates.flat().map(line));
  }
  const { countries } = topology.objects;
  const borders = countries ? mesh(topology, countries, (a, b) => a !== b).coordinates.map(line) : [];
  return { outlines, borders };
}

function line(positions: number[][]): Line {
  const coordinates = new Float64Array(positions.length * 2);
  const box = { west: 1, east: 0, north: 1, south: 0 };
  positions.forEach(([longitude = 0, latitude = 0], index) => {
    const [x, y] = toWorld([longitude, latitude]);
    coordinates[2 * index] = x;
    coordinates[2 * index + 1] = y;
    box.west = Math.min(box.west, x);
    box.east = Math.max(box.east, x);
    box.north = Math.min(box.north, y);
    box.south = Math.max(box.south, y);
  });
  return { coordinates, ...box };
}
