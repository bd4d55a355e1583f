/**
 * Decoders: what comes from outside becomes a typed value here, or a {@link DecodeError} that names the place.
 *
 * A decoder ignores members it does not know, so that a newer server can say more.
 */

/** Whatever JSON can say. */
export type Json = null | boolean | number | string | Json[] | JsonObject;
export interface JsonObject {
  [member: string]: Json;
}

export type Decoder<T> = (value: unknown, path: string) => T;

export class DecodeError extends Error {
  constructor(path: string, expected: string, found: unknown) {
    super(`the server's answer has ${describe(found)} at ${path} where ${expected} belongs`);
    this.name = "DecodeError";
  }
}

function describe(value: unknown): string {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

export const string: Decoder<string> = (value, path) => {
  if (typeof value === "string") return value;
  throw new DecodeError(path, "a string", value);
};

export const number: Decoder<number> = (value, path) => {
  if (typeof value === "number") return value;
  throw new DecodeError(path, "a number", value);
};

export const boolean: Decoder<boolean> = (value, path) => {
  if (typeof value === "boolean") return value;
  throw new DecodeError(path, "true or false", value);
};

/** Any JSON value. Only for what `JSON.parse` has produced. */
export const json: Decoder<Json> = (value, path) => {
  if (value === undefined) throw new DecodeError(path, "a value", value);
  return value as Json;
};

export function nullable<T>(inner: Decoder<T>): Decoder<T | null> {
  return (value, path) => (value === null || value === undefined ? null : inner(value, path));
}

export function withDefault<T>(inner: Decoder<T>, fallback: T): Decoder<T> {
  return (value, path) => (value === null || value === undefined ? fallback : inner(value, path));
}

export function array<T>(item: Decoder<T>): Decoder<T[]> {
  return (value, path) => {
    if (!Array.isArray(value)) throw new DecodeError(path, "an array", value);
    return value.map((entry, index) => item(entry, `${path}[${index}]`));
  };
}

export function object<T extends object>(members: { [K in keyof T]-?: Decoder<T[K]> }): Decoder<T> {
  return (value, path) => {
    const source = plainObject(value, path);
    const result: Partial<T> = {};
    for (const name in members) {
      result[name] = members[name](source[name], `${path}.${name}`);
    }
    return result as T;
  };
}

/** An object whose member names are data: every member's value goes through `item`. */
export function dictionary<T>(item: Decoder<T>): Decoder<Map<string, T>> {
  return (value, path) => {
    const entries = Object.entries(plainObject(value, path));
    return new Map(entries.map(([name, entry]) => [name, item(entry, `${path}.${name}`)]));
  };
}

export function plainObject(value: unknown, path: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new DecodeError(path, "an object", value);
  }
  return value as Record<string, unknown>;
}

/** A member of an object; undefined if there is none, or the value is no object. */
export function memberOf(value: Json | null | undefined, name: string): Json | undefined {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return Object.hasOwn(value, name) ? value[name] : undefined;
}

/** The elements of an array; any other value is the only one. */
export function listOf(value: Json | undefined): Json[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}
