/** What the address bar says of the entities page. */
import { type SpanName, spanOf } from "../live/attribute-history";
import type { View } from "../map/projection";
import { toPoint, toWorld, ZOOM_MAX } from "../map/projection";
import type { Move } from "../route";

export const LIMITS = [25, 50, 100, 250] as const;
const LIMIT_DEFAULT = 50;

const LISTS = ["entities", "subscriptions", "registrations"] as const;
export type ListName = (typeof LISTS)[number];

export interface EntitiesPlace {
  tenant: string;
  /** Which list is on the screen. */
  list: ListName;
  /** The id of the subscription that is open. */
  subscription: string | null;
  type: string;
  /** A text that the ids contain. */
  id: string;
  /** A condition in NGSI's simple query language. */
  q: string;
  /** As in `orderBy`: an attribute, with a `!` before it for the reverse order; empty: by creation. */
  order: string;
  /** From 1. */
  page: number;
  limit: number;
  selected: { id: string; type: string } | null;
  /** The attribute of the selected entity whose history is open; empty: none. */
  history: string;
  span: SpanName;
  map: "shown" | "hidden";
  /** Where the user has moved the map; null while it follows its entities. */
  view: View | null;
}

/** Goes to where `change` leads from the place at hand. */
export type Mover = (change: Partial<EntitiesPlace>, how: Move) => void;

export function entitiesPlace(params: URLSearchParams): EntitiesPlace {
  const page = Number(params.get("page") ?? 1);
  const limit = Number(params.get("limit") ?? LIMIT_DEFAULT);
  const id = params.get("entity");
  return {
    tenant: params.get("tenant") ?? "",
    list: LISTS.find((list) => list === params.get("list")) ?? "entities",
    subscription: params.get("subscription"),
    type: params.get("type") ?? "",
    id: params.get("id") ?? "",
    q: params.get("q") ?? "",
    order: params.get("order") ?? "",
    page: Number.isInteger(page) && page > 0 ? page : 1,
    limit: LIMITS.find((choice) => choice === limit) ?? LIMIT_DEFAULT,
    selected: id === null ? null : { id, type: params.get("entity_type") ?? "" },
    history: params.get("history") ?? "",
    span: spanOf(params.get("span")),
    map: params.get("map") === "hidden" ? "hidden" : "shown",
    view: viewOf(params.get("at")),
  };
}

export function entitiesParams(place: EntitiesPlace): Record<string, string> {
  return {
    tenant: place.tenant,
    list: place.list === "entities" ? "" : place.list,
    subscription: place.subscription ?? "",
    type: place.type,
    id: place.id,
    q: place.q,
    order: place.order,
    page: place.page === 1 ? "" : String(place.page),
    limit: place.limit === LIMIT_DEFAULT ? "" : String(place.limit),
    entity: place.selected?.id ?? "",
    entity_type: place.selected?.type ?? "",
    history: place.history,
    span: place.span === "latest" ? "" : place.span,
    map: place.map === "hidden" ? "hidden" : "",
    at: place.view === null ? "" : textOf(place.view),
  };
}

/** Latitude, longitude and zoom, as people and other maps write them. */
function textOf(view: View): string {
  const [longitude, latitude] = toPoint(view.x, view.y);
  return `${latitude.toFixed(4)},${longitude.toFixed(4)},${view.zoom.toFixed(2)}`;
}

function viewOf(text: string | null): View | null {
  const [latitude = Number.NaN, longitude = Number.NaN, zoom = Number.NaN] = (text ?? "").split(",").map(Number);
  if (!(Math.abs(latitude) <= 90 && Math.abs(longitude) <= 180 && zoom >= -2 && zoom <= ZOOM_MAX)) return null;
  const [x, y] = toWorld([longitude, latitude]);
  return { x, y, zoom };
}
