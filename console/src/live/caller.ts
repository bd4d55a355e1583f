/** Who uses the console, for what depends on roles. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { type Caller, hasRole, type Role } from "../api/login";

/** Null where no login is needed: then everybody may do everything. */
export const CallerContext = createContext<Caller | null>(null);

/** Why the caller may not do what takes `role`; undefined if it may. */
export function useRoleRefusal(role: Role): string | undefined {
  return roleRefusal(useContext(CallerContext), role);
}

export function roleRefusal(caller: Caller | null, role: Role): string | undefined {
  if (caller === null || hasRole(caller, role)) return undefined;
  return `This takes the role ${role}; your login has ${caller.roles.join(", ") || "none"}`;
}
