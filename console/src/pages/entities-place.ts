/** What the address bar says of the entities page. */
import type { View } from "../map/projection";
import { toPoint, toWorld, ZOOM_MAX } from "../map/projection";

export const LIMITS = [25, 50, 100, 250] as const;
const LIMIT_DEFAULT = 50;

export interface EntitiesPlace {
  tenant: string;
  type: string;
  id: string;
  /** From 1. */
  page: number;
  limit: number;
  selected: { id: string; type: string } | null;
  map: "shown" | "hidden";
  /** Where the user has moved the map; null while it follows its entities. */
  view: View | null;
}

export function entitiesPlace(params: URLSearchParams): EntitiesPlace {
  const page = Number(params.get("page") ?? 1);
  const limit = Number(params.get("limit") ?? LIMIT_DEFAULT);
  const id = params.get("entity");
  return {
    tenant: params.get("tenant") ?? "",
    type: params.get("type") ?? "",
    id: params.get("id") ?? "",
    page: Number.isInteger(page) && page > 0 ? page : 1,
    limit: LIMITS.find((choice) => choice === limit) ?? LIMIT_DEFAULT,
    selected: id === null ? null : { id, type: params.get("entity_type") ?? "" },
    map: params.get("map") === "hidden" ? "hidden" : "shown",
    view: viewOf(params.get("at")),
  };
}

export function entitiesParams(place: EntitiesPlace): Record<string, string> {
  return {
    tenant: place.tenant,
    type: place.type,
    id: place.id,
    page: place.page === 1 ? "" : String(place.page),
    limit: place.limit === LIMIT_DEFAULT ? "" : String(place.limit),
    entity: place.selected?.id ?? "",
    entity_type: place.selected?.type ?? "",
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
