/** NGSI-v2 entities, read in their normalized form. */
import {
  array,
  type Decoder,
  dictionary,
  type Json,
  json,
  number,
  object,
  plainObject,
  string,
  withDefault,
} from "./decode";
import { ask } from "./http";

export interface Metadata {
  type: string;
  value: Json;
}

export interface Attribute {
  type: string;
  value: Json;
  metadata: Map<string, Metadata>;
}

export interface Entity {
  id: string;
  type: string;
  /** In the server's order. */
  attributes: Map<string, Attribute>;
}

/** One page of entities, and how many there are on all pages. */
export interface Page {
  entities: Entity[];
  total: number;
}

export interface Selection {
  tenant: string;
  /** Empty means all, here and below. */
  type: string;
  /** A text that the id contains. */
  idPart: string;
  /** A condition in NGSI's simple query language. */
  q: string;
  /** The attribute that sorts, with a `!` before it for the reverse order; empty: by creation. */
  order: string;
  limit: number;
  offset: number;
}

/** Longitude and latitude in degrees, in GeoJSON's order. */
export type Point = readonly [longitude: number, latitude: number];

const attribute: Decoder<Attribute> = object<Attribute>({
  type: string,
  value: json,
  metadata: withDefault(dictionary(object<Metadata>({ type: withDefault(string, ""), value: json })), new Map()),
});

export const decodeEntity: Decoder<Entity> = (value, path) => {
  const { id, type, ...rest } = plainObject(value, path);
  return {
    id: string(id, `${path}.id`),
    type: string(type, `${path}.type`),
    attributes: dictionary(attribute)(rest, path),
  };
};

export async function fetchPage(selection: Selection): Promise<Page> {
  const query = new URLSearchParams({
    limit: String(selection.limit),
    offset: String(selection.offset),
    options: "count",
  });
  if (selection.type !== "") query.set("type", selection.type);
  if (selection.idPart !== "") query.set("idPattern", escapePattern(selection.idPart));
  if (selection.q !== "") query.set("q", selection.q);
  if (selection.order !== "") query.set("orderBy", selection.order);
  const call = { path: `/v2/entities?${query}`, tenant: selection.tenant };
  const { value: entities, headers } = await ask(call, array(decodeEntity));
  const total = Number(headers.get("Fiware-Total-Count") ?? Number.NaN);
  return { entities, total: Number.isFinite(total) ? total : selection.offset + entities.length };
}

/** As many entities as a map shows. */
export const PLACES_MAX = 2_000;
const PLACES_PAGE = 1_000;

/** The entities of a selection that have a place, of all its pages, up to {@link PLACES_MAX} entities. */
export async function fetchPlaced(selection: Omit<Selection, "order" | "limit" | "offset">): Promise<Entity[]> {
  const placed: Entity[] = [];
  for (let offset = 0; offset < PLACES_MAX; offset += PLACES_PAGE) {
    const { entities, total } = await fetchPage({ ...selection, order: "", limit: PLACES_PAGE, offset });
    placed.push(...entities.filter((entity) => locationOf(entity) !== null));
    if (offset + PLACES_PAGE >= total) break;
  }
  return placed;
}

export async function fetchEntity(tenant: string, id: string, type: string): Promise<Entity> {
  const query = type === "" ? "" : `?${new URLSearchParams({ type })}`;
  return (await ask({ path: `/v2/entities/${encodeURIComponent(id)}${query}`, tenant }, decodeEntity)).value;
}

/** A type of entities, and how many there are of it. */
export interface EntityType {
  type: string;
  count: number;
}

const TYPES_MAX = 1_000;

export async function fetchTypes(tenant: string): Promise<EntityType[]> {
  const query = new URLSearchParams({ limit: String(TYPES_MAX), options: "noAttrDetail" });
  const types = array(object<EntityType>({ type: string, count: number }));
  return (await ask({ path: `/v2/types?${query}`, tenant }, types)).value;
}

/** The pattern that a text contains `text` by: every character stands for itself. */
export function escapePattern(text: string): string {
  return text.replace(/[\\^$.|?*+()[\]{}]/g, "\\$&");
}

/** Names that the server means otherwise in `orderBy`: it splits at commas, `!` reverses, and built-ins win. */
const UNSORTABLE = /^!|,|^(?:dateCreated|dateModified|dateExpires|servicePath|alterationType|geo:distance)$/;

/** True if the server sorts by the attribute `name` exactly: it sorts by values, not by metadata. */
export function isSortable(name: string): boolean {
  return !UNSORTABLE.test(name);
}

/** Id and type together name an entity of a tenant. */
export function entityKey(entity: { id: string; type: string }): string {
  return JSON.stringify([entity.id, entity.type]);
}

/** The entity that a key names. */
export function entityOf(key: string): { id: string; type: string } {
  const [id = "", type = ""] = JSON.parse(key) as string[];
  return { id, type };
}

/** Where the entity is: its first attribute that holds a point. */
export function locationOf(entity: Entity): Point | null {
  for (const attribute of entity.attributes.values()) {
    const point = pointOf(attribute) ?? simplePointOf(attribute);
    if (point !== null) return point;
  }
  return null;
}

/** The point of an attribute of NGSI's type `geo:point`: `latitude, longitude`. */
function simplePointOf({ type, value }: Attribute): Point | null {
  if (type !== "geo:point" || typeof value !== "string") return null;
  const [latitude = "", longitude = "", ...rest] = value.split(",").map((part) => part.trim());
  if (rest.length > 0 || latitude === "" || longitude === "") return null;
  return onEarth(Number(longitude), Number(latitude));
}

/** The GeoJSON point that an attribute holds, if it holds one that lies on Earth. */
export function pointOf({ type, value }: Attribute): Point | null {
  if (type !== "geo:json" || typeof value !== "object" || value === null || Array.isArray(value)) return null;
  const { type: shape, coordinates } = value;
  if (shape !== "Point" || !Array.isArray(coordinates)) return null;
  const [longitude, latitude] = coordinates;
  if (typeof longitude !== "number" || typeof latitude !== "number") return null;
  return onEarth(longitude, latitude);
}

function onEarth(longitude: number, latitude: number): Point | null {
  return Math.abs(longitude) <= 180 && Math.abs(latitude) <= 90 ? [longitude, latitude] : null;
}

/** When the entity was last measured: the latest `TimeInstant` of its attributes, in milliseconds since 1970. */
export function measuredAt(entity: Entity): number | null {
  let latest: number | null = null;
  for (const { metadata } of entity.attributes.values()) {
    const instant = metadata.get("TimeInstant")?.value;
    const time = typeof instant === "string" ? Date.parse(instant) : Number.NaN;
    if (!Number.isNaN(time) && (latest === null || time > latest)) latest = time;
  }
  return latest;
}
