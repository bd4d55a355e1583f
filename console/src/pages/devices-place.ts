/** The choices on the page of devices, as the address bar has them. */
import { DEVICE_LIMITS, type DeviceSearch } from "../api/devices";
import type { Move } from "../route";

const LIMIT_DEFAULT = 50;
const KINDS = ["gateways", "others"] as const;
const STATES = ["connected", "disabled"] as const;
const ORDERS = ["seen", "created"] as const;

export interface DevicesPlace extends DeviceSearch {
  tenant: string;
  /** The id of the device that is open; empty: none. */
  device: string;
}

/** Goes to where `change` leads from the place at hand. */
export type DevicesMover = (change: Partial<DevicesPlace>, how: Move) => void;

export function devicesPlace(params: URLSearchParams): DevicesPlace {
  const page = Number(params.get("page") ?? 1);
  const limit = Number(params.get("limit") ?? LIMIT_DEFAULT);
  return {
    tenant: params.get("tenant") ?? "",
    text: params.get("search") ?? "",
    kind: KINDS.find((choice) => choice === params.get("kind")) ?? "",
    state: STATES.find((choice) => choice === params.get("state")) ?? "",
    order: ORDERS.find((choice) => choice === params.get("order")) ?? "id",
    page: Number.isInteger(page) && page > 0 ? page : 1,
    limit: DEVICE_LIMITS.find((choice) => choice === limit) ?? LIMIT_DEFAULT,
    device: params.get("device") ?? "",
  };
}

export function devicesParams(place: DevicesPlace): Record<string, string> {
  return {
    tenant: place.tenant,
    search: place.text,
    kind: place.kind,
    state: place.state,
    order: place.order === "id" ? "" : place.order,
    page: place.page === 1 ? "" : String(place.page),
    limit: place.limit === LIMIT_DEFAULT ? "" : String(place.limit),
    device: place.device,
  };
}
