/** The choices on the page of the store, as the address bar has them. */
import type { EncodedKey } from "../api/store";
import type { Move } from "../route";
import { LIMITS } from "./entities-place";

const LIMIT_DEFAULT = 50;

export interface StorePlace {
  tenant: string;
  /** The bucket that is open; empty: none. */
  bucket: string;
  /** Only keys that begin with this. */
  prefix: EncodedKey;
  /** `folders`: what lies behind the next slash is one line. */
  view: "folders" | "all";
  /** The first key of the page; empty: the first there is. */
  start: EncodedKey;
  limit: number;
  /** The key that is open; null: none. */
  key: EncodedKey | null;
}

/** Goes to where `change` leads from the place at hand. */
export type StoreMover = (change: Partial<StorePlace>, how: Move) => void;

export function storePlace(params: URLSearchParams): StorePlace {
  const limit = Number(params.get("limit") ?? LIMIT_DEFAULT);
  return {
    tenant: params.get("tenant") ?? "",
    bucket: params.get("bucket") ?? "",
    prefix: params.get("prefix") ?? "",
    view: params.get("view") === "all" ? "all" : "folders",
    start: params.get("start") ?? "",
    limit: LIMITS.find((choice) => choice === limit) ?? LIMIT_DEFAULT,
    key: params.get("key"),
  };
}

export function storeParams(place: StorePlace): Record<string, string> {
  return {
    tenant: place.tenant,
    bucket: place.bucket,
    prefix: place.prefix,
    view: place.view === "folders" ? "" : place.view,
    start: place.start,
    limit: place.limit === LIMIT_DEFAULT ? "" : String(place.limit),
    key: place.key ?? "",
  };
}
