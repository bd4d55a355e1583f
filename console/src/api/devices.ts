/** `/v1/devices`: the registry's devices, found, read and changed. Also where their measurements become no entity. */
import {
  array,
  boolean,
  type Decoder,
  type Json,
  type JsonObject,
  json,
  nullable,
  number,
  object,
  plainObject,
  string,
  withDefault,
} from "./decode";
import { ask, change, Refused } from "./http";

export const TENANT_DEFAULT = "default";
/** Results of the largest page that the registry gives. */
export const DEVICE_LIMITS = [25, 50, 100, 200] as const;

export interface DeviceStatus {
  created: string;
  updated: string;
  /** Whether it has an open MQTT connection of its own. */
  connected: boolean;
  /** When its last message was taken; null before the first. */
  last_seen: string | null;
  provisioned: boolean;
}

export interface Device {
  id: string;
  enabled: boolean;
  /** Gateways that may act for it, and groups of them. */
  via: string[];
  via_groups: string[];
  /** Groups of gateways that it belongs to. */
  member_of: string[];
  defaults: JsonObject;
  ext: JsonObject;
  status: DeviceStatus;
  /** All of it, as the registry has it: what is written back keeps what this page does not know. */
  document: JsonObject;
}

export interface StoredDevice {
  device: Device;
  version: string;
}

export interface DeviceSearch {
  /** What the id has in it; `*` and `?` make it a pattern for the whole id. */
  text: string;
  kind: "" | "gateways" | "others";
  state: "" | "connected" | "disabled";
  order: "id" | "seen" | "created";
  /** From 1. */
  page: number;
  limit: number;
}

export interface FoundDevices {
  total: number;
  devices: Device[];
}

const jsonObject: Decoder<JsonObject> = (value, path) => plainObject(json(value, path), path) as JsonObject;

const status = object({
  created: string,
  updated: string,
  connected: withDefault(boolean, false),
  "last-seen": nullable(string),
  "auto-provisioned": withDefault(boolean, false),
});

const members = object({
  enabled: withDefault(boolean, true),
  via: withDefault(array(string), []),
  viaGroups: withDefault(array(string), []),
  memberOf: withDefault(array(string), []),
  defaults: withDefault(jsonObject, {}),
  ext: withDefault(jsonObject, {}),
  status,
});

export function decodeDevice(id: string, value: unknown, path: string): Device {
  const { enabled, via, viaGroups, memberOf, defaults, ext, status: is } = members(value, path);
  return {
    id,
    enabled,
    via,
    via_groups: viaGroups,
    member_of: memberOf,
    defaults,
    ext,
    status: {
      created: is.created,
      updated: is.updated,
      connected: is.connected,
      last_seen: is["last-seen"],
      provisioned: is["auto-provisioned"],
    },
    document: jsonObject(value, path),
  };
}

const found: Decoder<FoundDevices> = (value, path) => {
  const { total, result } = object({ total: number, result: array(json) })(value, path);
  const devices = result.map((entry, index) => {
    const place = `${path}.result[${index}]`;
    return decodeDevice(object({ id: string })(entry, place).id, entry, place);
  });
  return { total, devices };
};

const tenantName = (tenant: string): string => (tenant === "" ? TENANT_DEFAULT : tenant);

export function devicePath(kind: "devices" | "credentials", tenant: string, id: string): string {
  return `/v1/${kind}/${encodeURIComponent(tenantName(tenant))}/${encodeURIComponent(id)}`;
}

export async function searchDevices(tenant: string, search: DeviceSearch): Promise<FoundDevices> {
  const path = `/v1/devices/${encodeURIComponent(tenantName(tenant))}?${searchParams(search)}`;
  try {
    return (await ask({ path, tenant }, found)).value;
  } catch (cause) {
    // A search without result is refused, in these words.
    if (cause instanceof Refused && cause.status === 404 && cause.message.startsWith("nothing matches")) {
      return { total: 0, devices: [] };
    }
    throw cause;
  }
}

export async function countDevices(tenant: string): Promise<number> {
  const first = { text: "", kind: "", state: "", order: "id", page: 1, limit: DEVICE_LIMITS[0] } as const;
  return (await searchDevices(tenant, first)).total;
}

export function searchParams({ text, kind, state, order, page, limit }: DeviceSearch): string {
  const params = new URLSearchParams({ pageSize: String(limit), pageOffset: String((page - 1) * limit) });
  const filter = (field: string, value: Json): void => {
    params.append("filterJson", JSON.stringify({ field, value }));
  };
  if (text !== "") filter("/id", /[*?]/.test(text) ? text : `*${text}*`);
  if (state === "connected") filter("/status/connected", true);
  if (state === "disabled") filter("/enabled", false);
  if (kind !== "") params.set("isGateway", String(kind === "gateways"));
  if (order !== "id") {
    const field = order === "seen" ? "/status/last-seen" : "/status/created";
    params.set("sortJson", JSON.stringify({ field, direction: "desc" }));
  }
  return params.toString();
}

export async function fetchDevice(tenant: string, id: string): Promise<StoredDevice> {
  const decode: Decoder<Device> = (value, path) => decodeDevice(id, value, path);
  const { value, headers } = await ask({ path: devicePath("devices", tenant, id), tenant }, decode);
  return { device: value, version: headers.get("ETag") ?? "" };
}

export async function createDevice(tenant: string, id: string, document: JsonObject): Promise<void> {
  await change({ path: devicePath("devices", tenant, id), tenant, method: "POST", body: document });
}

/** Replaces a device if it still has this version. */
export async function replaceDevice(tenant: string, stored: StoredDevice, document: JsonObject): Promise<void> {
  const path = devicePath("devices", tenant, stored.device.id);
  await change({ path, tenant, method: "PUT", body: document, ifMatch: stored.version });
}

/** Deletes a device if it still has this version. */
export async function deleteDevice(tenant: string, stored: StoredDevice): Promise<void> {
  const path = devicePath("devices", tenant, stored.device.id);
  await change({ path, tenant, method: "DELETE", ifMatch: stored.version });
}

/** Why measurements of a device, or a part of them, became no entity. */
export interface MappingError {
  device: string;
  at: string;
  what: string;
  count: number;
}

export interface MappingErrors {
  total: number;
  devices: MappingError[];
}

const mappingErrors = object<MappingErrors>({
  total: number,
  devices: array(object<MappingError>({ device: string, at: string, what: string, count: number })),
});

/** The errors since the server started, of all devices or of one. */
export async function fetchMappingErrors(tenant: string, device: string | null): Promise<MappingErrors> {
  const query = device === null ? "" : `?${new URLSearchParams({ device })}`;
  return (await ask({ path: `/api/mapping-errors${query}`, tenant }, mappingErrors)).value;
}
