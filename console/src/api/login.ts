/** `GET /api/login`: whether the server asks for a login, where one logs in, and as whom one is known. */
import { array, nullable, object, string } from "./decode";
import { ask, Refused } from "./http";
import { decodeProvider, type Provider } from "./oidc";

/** The tenant of a caller who may name any. */
export const EVERY_TENANT = "*";

export const ROLES = ["reader", "writer", "admin"] as const;
export type Role = (typeof ROLES)[number];

/** The beginnings of the names to which a login is limited: it has what begins so, and nothing else. */
export interface LoginLimits {
  topics: readonly string[];
  /** Of entities. */
  types: readonly string[];
  /** Each is a bucket, a slash and the beginning of its keys. */
  keys: readonly string[];
}

export interface Caller {
  name: string;
  tenant: string;
  roles: readonly string[];
  /** Null for a login that has all of its tenant. */
  limits: LoginLimits | null;
}

export interface Login {
  /** Every request needs a login. */
  required: boolean;
  oidc: Provider | null;
  caller: Caller | null;
}

const decodeLogin = object<Login>({
  required: (value) => value === true,
  oidc: nullable(decodeProvider),
  caller: nullable(
    object<Caller>({
      name: string,
      tenant: string,
      roles: array(string),
      limits: nullable(object<LoginLimits>({ topics: array(string), types: array(string), keys: array(string) })),
    }),
  ),
});

/** Asks with this login, or without one, whatever the browser keeps. A wrong one is {@link Refused}. */
export async function fetchLogin(bearer: string | null): Promise<Login> {
  return (await ask({ path: "/api/login", tenant: "", cache: "no-store", bearer }, decodeLogin)).value;
}

/** True for a refusal of the login itself: it is not known, or its claims give nobody here. */
export function isLoginRefused(cause: unknown): cause is Refused {
  return cause instanceof Refused && (cause.status === 401 || cause.status === 403);
}

/** The tenant to which a caller is limited; null for callers of all tenants, and where no login is needed. */
export function ownTenant(caller: Caller | null): string | null {
  return caller === null || caller.tenant === EVERY_TENANT ? null : caller.tenant;
}

/** True if the caller has this role, or if no login is needed. */
export function hasRole(caller: Caller | null, role: Role): boolean {
  return caller === null || caller.roles.includes(role);
}

/** True if a login has all keys of a bucket, and so its figures. */
export function hasBucket(limits: LoginLimits | null, bucket: string): boolean {
  return limits === null || limits.keys.includes(`${bucket}/`);
}
