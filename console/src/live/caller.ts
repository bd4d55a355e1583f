/** Who uses the console, for what depends on roles and limits. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { type Caller, hasRole, type LoginLimits, type Role } from "../api/login";
import type { PageName } from "../route";

/** Null where no login is needed: then everybody may do everything. */
export const CallerContext = createContext<Caller | null>(null);

/** What an action takes beside its role: a login for that part of the tenant, or one for all of it. */
export type Extent = "part" | "whole";

/** Why the caller may not do what takes `role` and `extent`; undefined if it may. */
export function useRefusal(role: Role, extent: Extent = "part"): string | undefined {
  return refusalOf(useContext(CallerContext), role, extent);
}

export function refusalOf(caller: Caller | null, role: Role, extent: Extent): string | undefined {
  if (caller === null) return undefined;
  if (!hasRole(caller, role)) {
    return `This takes the role ${role}; your login has ${caller.roles.join(", ") || "none"}`;
  }
  if (extent === "part" || caller.limits === null) return undefined;
  return `This takes a login without limits; yours is good for ${limitsText(caller.limits)}`;
}

/** What a login is good for, such as "topics orders…, keys shop/img/…". */
export function limitsText({ topics, types, keys }: LoginLimits): string {
  const named = { topics, types, keys };
  const parts = Object.entries(named).filter(([, prefixes]) => prefixes.length > 0);
  return parts.map(([what, prefixes]) => `${what} ${prefixes.map((prefix) => `${prefix}…`).join(" or ")}`).join(", ");
}

/** True if the server shows the caller something of a page. */
export function mayOpen(caller: Caller | null, page: PageName): boolean {
  const limits = caller?.limits ?? null;
  if (limits === null) return true;
  const prefixes: Partial<Record<PageName, readonly string[]>> = {
    topics: limits.topics,
    entities: limits.types,
    store: limits.keys,
  };
  return (prefixes[page] ?? []).length > 0;
}
