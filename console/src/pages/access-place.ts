/** The choices on the page of access, as the address bar has them. */
import type { Move } from "../route";

/** Rows on a page: the registry gives 200 tenants at most at once. */
export const ACCESS_LIMITS = [25, 50, 100] as const;
const LIMIT_DEFAULT = 25;

export interface AccessPlace {
  tenant: string;
  /** The page of the tenants, and of the tokens, from 1. */
  page: number;
  tokens: number;
  /** Rows on a page of either list. */
  limit: number;
  /** Only tokens whose name has this in it. */
  name: string;
}

/** Goes to where `change` leads from the place at hand. */
export type AccessMover = (change: Partial<AccessPlace>, how: Move) => void;

export function accessPlace(params: URLSearchParams): AccessPlace {
  const page = (name: string): number => {
    const given = Number(params.get(name) ?? 1);
    return Number.isInteger(given) && given > 0 ? given : 1;
  };
  const limit = Number(params.get("limit") ?? LIMIT_DEFAULT);
  return {
    tenant: params.get("tenant") ?? "",
    page: page("page"),
    tokens: page("tokens"),
    limit: ACCESS_LIMITS.find((choice) => choice === limit) ?? LIMIT_DEFAULT,
    name: params.get("name") ?? "",
  };
}

export function accessParams(place: AccessPlace): Record<string, string> {
  return {
    tenant: place.tenant,
    page: place.page === 1 ? "" : String(place.page),
    tokens: place.tokens === 1 ? "" : String(place.tokens),
    limit: place.limit === LIMIT_DEFAULT ? "" : String(place.limit),
    name: place.name,
  };
}
