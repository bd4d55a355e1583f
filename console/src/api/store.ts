/** Buckets of the store, their keys, and the values under them. */
import { array, type Decoder, DecodeError, nullable, number, object, plainObject, string, withDefault } from "./decode";
import { ask, send } from "./http";

export interface Bucket {
  name: string;
  /** Null for a cache, which has none. */
  topic: string | null;
  settings: BucketSettings;
  keys: number;
  bytes: number;
  cache: CacheFigures;
}

export interface BucketSettings {
  kind: string;
  partitions: number;
  ack: string;
  ttl_ms: number | null;
  max_bytes: number | null;
  max_keys: number | null;
  value_max_bytes: number | null;
  writes_per_second: number | null;
  policy: string;
}

/** Reads that found their value in memory, and those that did not, since the server started. */
export interface CacheFigures {
  hits: number;
  misses: number;
  bytes: number;
  max_bytes: number;
}

/** What a new bucket is asked to be; what is left out gets the server's default. */
export type NewBucket = Partial<Readonly<Record<keyof BucketSettings, string | number>>>;

/** A key, by its percent-encoded bytes; it may be no text. */
export type EncodedKey = string;

export type Line = KeyLine | { kind: "prefix"; prefix: EncodedKey };

export interface KeyLine {
  kind: "key";
  key: EncodedKey;
  version: number;
  length: number;
  written: string;
  expires: string | null;
  content_type: string | null;
  tags: string[];
}

export interface KeysPage {
  lines: Line[];
  /** The first key of the next page; null if there is none. */
  next: EncodedKey | null;
}

export interface KeySelection {
  bucket: string;
  prefix: EncodedKey;
  /** Keys with this behind the prefix are shown as their common prefix; empty: all are shown. */
  delimiter: string;
  start: EncodedKey;
  limit: number;
}

export interface StoredValue {
  bytes: Uint8Array<ArrayBuffer>;
  /** Of the whole value, of which `bytes` may be the beginning. */
  length: number;
  version: string;
  content_type: string | null;
  written: string | null;
  expires: string | null;
  timestamp: string | null;
  tags: string[];
  metadata: [name: string, value: string][];
}

export const decodeBucket: Decoder<Bucket> = object<Bucket>({
  name: string,
  topic: nullable(string),
  settings: object<BucketSettings>({
    kind: string,
    partitions: number,
    ack: string,
    ttl_ms: nullable(number),
    max_bytes: nullable(number),
    max_keys: nullable(number),
    value_max_bytes: nullable(number),
    writes_per_second: nullable(number),
    policy: withDefault(string, ""),
  }),
  keys: number,
  bytes: number,
  cache: object<CacheFigures>({ hits: number, misses: number, bytes: number, max_bytes: number }),
});

export async function fetchBuckets(tenant: string): Promise<Bucket[]> {
  return (await ask({ path: "/buckets", tenant }, array(decodeBucket))).value;
}

export async function fetchBucket(tenant: string, name: string): Promise<Bucket> {
  return (await ask({ path: bucketPath(name), tenant }, decodeBucket)).value;
}

export async function makeBucket(tenant: string, name: string, settings: NewBucket): Promise<void> {
  await ask({ path: bucketPath(name), tenant, method: "PUT", body: settings }, decodeBucket);
}

export async function deleteBucket(tenant: string, name: string): Promise<void> {
  await send({ path: bucketPath(name), tenant, method: "DELETE" });
}

export async function fetchKeys(tenant: string, selection: KeySelection): Promise<KeysPage> {
  const { bucket, prefix, delimiter, start, limit } = selection;
  const parameters = [`limit=${limit}`];
  if (prefix !== "") parameters.push(`prefix=${prefix}`);
  if (start !== "") parameters.push(`start=${start}`);
  if (delimiter !== "") parameters.push(`delimiter=${encodeURIComponent(delimiter)}`);
  const path = `/kv/${encodeURIComponent(bucket)}?${parameters.join("&")}`;
  const answer = await send({ path, tenant, accept: "application/x-ndjson" });
  return decodeKeys(await answer.text());
}

/** Reads the lines of a listing. One without its last line, which tells where the next page begins, was cut. */
export function decodeKeys(text: string): KeysPage {
  const lines: Line[] = [];
  for (const [index, line] of text.split("\n").entries()) {
    if (line === "") continue;
    const path = `line ${index + 1}`;
    const members = plainObject(parse(line), path);
    if ("next" in members) return { lines, next: startOf(nullable(string)(members.next, `${path}.next`)) };
    lines.push(decodeLine(members, path));
  }
  throw new DecodeError("the end", "the place of the next page", undefined);
}

const keyLine = object<Omit<KeyLine, "kind" | "key">>({
  version: number,
  length: number,
  written: string,
  expires: nullable(string),
  content_type: nullable(string),
  tags: withDefault(array(string), []),
});

function decodeLine(members: Record<string, unknown>, path: string): Line {
  const prefix = encoded(members, "prefix", path);
  if (prefix !== null) return { kind: "prefix", prefix };
  const key = encoded(members, "key", path);
  if (key === null) throw new DecodeError(path, "a key or a prefix", members.key);
  return { kind: "key", key, ...keyLine(members, path) };
}

/** The percent-encoded bytes that a member holds as text or as base64. */
function encoded(members: Record<string, unknown>, name: string, path: string): EncodedKey | null {
  const text = nullable(string)(members[name], `${path}.${name}`);
  if (text !== null) return encodeURIComponent(text);
  const base64 = nullable(string)(members[`${name}_base64`], `${path}.${name}_base64`);
  if (base64 === null) return null;
  // Letters stay what they are, as in the text of other keys.
  return atob(base64).replaceAll(/[^\w.!~*'()-]/g, (byte) => {
    return `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
  });
}

/** The percent-encoded start of a page's address. */
function startOf(target: string | null): EncodedKey | null {
  const [, start] = /[?&]start=([^&]*)/.exec(target ?? "") ?? [];
  return start ?? null;
}

/** The key as text, or as it is encoded if its bytes are no text. */
export function keyText(key: EncodedKey): string {
  try {
    return decodeURIComponent(key);
  } catch {
    return key;
  }
}

/** Reads a value: all of it if `most` allows that for its type and length, else its beginning. */
export async function fetchValue(
  tenant: string,
  bucket: string,
  key: EncodedKey,
  most: (contentType: string, length: number) => number,
): Promise<StoredValue> {
  const answer = await send({ path: keyPath(bucket, key), tenant, accept: "*/*", cache: "no-store" });
  const header = (name: string): string | null => {
    const value = answer.headers.get(name);
    return value === null ? null : utf8(value);
  };
  const content_type = header("Content-Type");
  const length = Number(header("Content-Length") ?? Number.NaN);
  const bytes = await beginning(answer, most(content_type ?? "", length));
  return {
    bytes,
    length: Number.isNaN(length) ? bytes.length : length,
    version: (header("ETag") ?? "").replaceAll('"', ""),
    content_type,
    written: header("Last-Modified"),
    expires: header("X-Expires"),
    timestamp: header("X-Timestamp"),
    tags: (header("X-Tags") ?? "").split(",").filter((tag) => tag !== ""),
    metadata: [...answer.headers]
      .filter(([name]) => name.startsWith(METADATA))
      .map(([name, value]) => [name.slice(METADATA.length), utf8(value)]),
  };
}

const METADATA = "x-meta-";

/** Deletes a key if it still has this version. */
export async function deleteKey(tenant: string, bucket: string, key: EncodedKey, version: string): Promise<void> {
  await send({ path: keyPath(bucket, key), tenant, method: "DELETE", ifMatch: `"${version}"` });
}

function bucketPath(name: string): string {
  return `/buckets/${encodeURIComponent(name)}`;
}

/** The path of a key. One that begins with `_` would be a route of the bucket. */
export function keyPath(bucket: string, key: EncodedKey): string {
  return `/kv/${encodeURIComponent(bucket)}/${key.replace(/^_/, "%5F")}`;
}

/** Reads at most `most` bytes and lets the rest be. */
async function beginning(answer: Response, most: number): Promise<Uint8Array<ArrayBuffer>> {
  const reader = answer.body?.getReader();
  const pieces: Uint8Array[] = [];
  let length = 0;
  while (reader !== undefined && length < most) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value.subarray(0, most - length));
    length += Math.min(value.length, most - length);
  }
  await reader?.cancel();
  const bytes = new Uint8Array(length);
  let at = 0;
  for (const piece of pieces) {
    bytes.set(piece, at);
    at += piece.length;
  }
  return bytes;
}

/** A header's text: browsers take its bytes for Latin-1. */
function utf8(header: string): string {
  return new TextDecoder().decode(Uint8Array.from(header, (character) => character.charCodeAt(0)));
}

function parse(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}
