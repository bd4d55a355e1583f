/** Members of objects in JSON whose kind is not known beforehand. */
import type { Json, JsonObject } from "../api/decode";

/** The member as an object; an empty one if it is none. */
export function objectIn(object: JsonObject, name: string): JsonObject {
  const value: Json | undefined = object[name];
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

/** The texts among the member's items; none if it is no list. */
export function listIn(object: JsonObject, name: string): string[] {
  const value = object[name];
  return Array.isArray(value) ? value.filter((item) => typeof item === "string") : [];
}

/** The member as a field shows it; empty if it is absent or null. */
export function textIn(object: JsonObject, name: string): string {
  const value = object[name] ?? "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function without(object: JsonObject, ...names: string[]): JsonObject {
  return Object.fromEntries(Object.entries(object).filter(([member]) => !names.includes(member)));
}
