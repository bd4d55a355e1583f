/** Who may do what: tenants (`/v1/tenants`) and API tokens (`/api/tokens`). */
import { array, type Decoder, json, nullable, number, object, plainObject, string, withDefault } from "./decode";
import { ask, change, Refused } from "./http";
import type { Role } from "./login";

export interface Tenant {
  id: string;
  alias: string | null;
  /** Devices of a tenant that is not enabled are refused. */
  enabled: boolean;
  /** Certificate authorities that may sign certificates of its devices. */
  trustAnchors: number;
  /** What it may have or do at most; null without a limit. */
  limits: Readonly<Record<LimitName, number | null>>;
}

/** The limits that the console shows, by the names of the registry. */
export const TENANT_LIMITS = {
  "max-devices": "devices",
  "max-credentials-per-device": "credentials a device",
  "max-connections": "connections",
  "max-messages-per-second": "messages/s",
  "max-bytes-per-second": "bytes/s",
} as const;

export type LimitName = keyof typeof TENANT_LIMITS;

export interface TenantPage {
  tenants: Tenant[];
  total: number;
}

/** Limits as the registry has them: -1, or nothing, is no limit. */
const limit: Decoder<number | null> = (value, path) => {
  const given = nullable(number)(value, path);
  return given === null || given < 0 ? null : given;
};

export const decodeTenant: Decoder<Tenant> = (value, path) => {
  const members = plainObject(value, path);
  const group = (name: string): Record<string, unknown> =>
    members[name] === undefined ? {} : plainObject(members[name], `${path}.${name}`);
  const given = { ...group("resource-limits"), ...group("registration-limits") };
  const names = Object.keys(TENANT_LIMITS) as LimitName[];
  const limits = names.map((name) => [name, limit(given[name], `${path}.${name}`)]);
  return {
    id: string(members.id, `${path}.id`),
    alias: nullable(string)(members.alias, `${path}.alias`),
    enabled: members.enabled !== false,
    trustAnchors: withDefault(array(json), [])(members["trusted-ca"], `${path}.trusted-ca`).length,
    limits: Object.fromEntries(limits) as Tenant["limits"],
  };
};

const decodePage = object<{ total: number; result: Tenant[] }>({ total: number, result: array(decodeTenant) });

/** The tenants of a page; `own` is the only one that the caller may see, null for callers of all tenants. */
export async function fetchTenants(own: string | null, page: number, size: number): Promise<TenantPage> {
  try {
    if (own !== null) {
      const { value } = await ask({ path: tenantPath(own), tenant: own }, plainObject);
      return { tenants: [decodeTenant({ ...value, id: own }, "answer")], total: 1 };
    }
    const query = new URLSearchParams({ pageSize: String(size), pageOffset: String((page - 1) * size) });
    const { total, result } = (await ask({ path: `/v1/tenants?${query}`, tenant: "" }, decodePage)).value;
    return { tenants: result, total };
  } catch (cause) {
    // A search without a result, and a tenant that only the log knows, are answered so.
    if (cause instanceof Refused && cause.status === 404) return { tenants: [], total: 0 };
    throw cause;
  }
}

export interface NewTenant {
  id: string;
  limits: Readonly<Partial<Record<LimitName, number>>>;
}

/** The limits that belong to the registration of devices; the others are those of resources. */
const REGISTRATION_LIMITS: readonly LimitName[] = ["max-devices", "max-credentials-per-device"];

export async function createTenant({ id, limits }: NewTenant): Promise<void> {
  const given = Object.entries(limits) as [LimitName, number][];
  const group = (ofRegistration: boolean): Record<string, number> =>
    Object.fromEntries(given.filter(([name]) => REGISTRATION_LIMITS.includes(name) === ofRegistration));
  const body = { "registration-limits": group(true), "resource-limits": group(false) };
  await change({ path: tenantPath(id), tenant: "", method: "POST", body });
}

/** Changes the tenant as it is now; somebody else's change in between is refused. */
export async function setTenantEnabled(id: string, enabled: boolean): Promise<void> {
  const { value, headers } = await ask({ path: tenantPath(id), tenant: "" }, plainObject);
  const version = headers.get("ETag");
  const call = { path: tenantPath(id), tenant: "", method: "PUT", body: { ...value, enabled } } as const;
  await change(version === null ? call : { ...call, ifMatch: version });
}

export async function deleteTenant(id: string): Promise<void> {
  await change({ path: tenantPath(id), tenant: "", method: "DELETE" });
}

function tenantPath(id: string): string {
  return `/v1/tenants/${encodeURIComponent(id)}`;
}

/** An API token without its secret. */
export interface Token {
  name: string;
  /** `*` for all. */
  tenant: string;
  roles: readonly string[];
  /**
   * Prefixes of topics, of types of entities, of buckets with keys, of consumer groups and of transactional ids, for which alone it is
   * good; none are no limit.
   */
  topics: readonly string[];
  types: readonly string[];
  keys: readonly string[];
  groups: readonly string[];
  transactional_ids: readonly string[];
  created: string;
  created_by: string;
  expires: string | null;
}

export const decodeToken: Decoder<Token> = object<Token>({
  name: string,
  tenant: string,
  roles: array(string),
  topics: withDefault(array(string), []),
  types: withDefault(array(string), []),
  keys: withDefault(array(string), []),
  groups: withDefault(array(string), []),
  transactional_ids: withDefault(array(string), []),
  created: string,
  created_by: string,
  expires: nullable(string),
});

export async function fetchTokens(): Promise<Token[]> {
  return (await ask({ path: "/api/tokens", tenant: "" }, array(decodeToken))).value;
}

export interface NewToken {
  name: string;
  /** The caller's own if left out. */
  tenant?: string;
  roles: readonly Role[];
  topics?: readonly string[];
  types?: readonly string[];
  keys?: readonly string[];
  groups?: readonly string[];
  transactional_ids?: readonly string[];
  /** How long it is good, such as `30d`; without it and `expires`, for ever. */
  lifetime?: string;
  expires?: string;
}

/** Makes a token and returns its secret, which no other answer holds. `bearer`: see `Call`. */
export async function createToken(token: NewToken, bearer?: null): Promise<string> {
  const call = { path: "/api/tokens", tenant: "", method: "POST", body: token } as const;
  const decoder = object<{ token: string }>({ token: string });
  return (await ask(bearer === undefined ? call : { ...call, bearer }, decoder)).value.token;
}

export async function revokeToken(name: string): Promise<void> {
  await change({ path: `/api/tokens/${encodeURIComponent(name)}`, tenant: "", method: "DELETE" });
}
