/** NGSI-v2 requests that change one entity or one of its attributes. */
import type { Json } from "./decode";
import { change } from "./http";

/** Names an entity: an id is unique together with its type. */
export interface EntityName {
  tenant: string;
  id: string;
  type: string;
}

/** A value with its type, as NGSI writes an attribute. */
export interface TypedValue {
  type: string;
  value: Json;
}

/** Creates an entity from its normalized form; one that is there already is refused. */
export async function createEntity(tenant: string, entity: Readonly<Record<string, Json>>): Promise<void> {
  await change({ path: "/v2/entities", tenant, method: "POST", body: entity });
}

export async function deleteEntity(name: EntityName): Promise<void> {
  await change({ path: pathOf(name, ""), tenant: name.tenant, method: "DELETE" });
}

/** Adds an attribute; one that is there already is refused. */
export async function addAttribute(name: EntityName, attribute: string, value: TypedValue): Promise<void> {
  const path = pathOf(name, "/attrs", { options: "append" });
  await change({ path, tenant: name.tenant, method: "POST", body: { [attribute]: value } });
}

/** Replaces value and type of an attribute; its metadata stay. */
export async function setAttribute(name: EntityName, attribute: string, value: TypedValue): Promise<void> {
  await change({ path: pathOf(name, attributePath(attribute)), tenant: name.tenant, method: "PUT", body: value });
}

export async function deleteAttribute(name: EntityName, attribute: string): Promise<void> {
  await change({ path: pathOf(name, attributePath(attribute)), tenant: name.tenant, method: "DELETE" });
}

function attributePath(attribute: string): string {
  return `/attrs/${encodeURIComponent(attribute)}`;
}

function pathOf({ id, type }: EntityName, rest: string, parameters: Readonly<Record<string, string>> = {}): string {
  const query = new URLSearchParams({ ...(type === "" ? {} : { type }), ...parameters }).toString();
  return `/v2/entities/${encodeURIComponent(id)}${rest}${query === "" ? "" : `?${query}`}`;
}
