/** Records of topics: pages of them, single ones, and appends. */
import { type Decoder, DecodeError, dictionary, type Json, json, nullable, number, object, string } from "./decode";
import { ask, send, Unreachable } from "./http";
import { readEvents } from "./events";
import { rawMembers, rawParts } from "./raw-json";

/** `json`: as it was written. `bytes` are no text. */
export type RecordValue =
  | { kind: "none" }
  | { kind: "json"; text: string }
  | { kind: "text"; text: string }
  | { kind: "bytes"; bytes: Uint8Array };

export interface TopicRecord {
  partition: number;
  offset: number;
  /** ISO time. */
  timestamp: string;
  key: RecordValue;
  value: RecordValue;
  headers: [name: string, value: string][];
}

/** The next offset of each partition, such as `0:17,1:4`. */
export type Position = ReadonlyMap<number, number>;

/** Which records are wanted; empty: all. */
export interface RecordFilter {
  /** A pattern: `*` stands for any characters, `?` for one. */
  key: string;
  /** Text that the value has in it. */
  text: string;
}

export interface RecordsRequest {
  topic: string;
  /** `earliest`, an ISO time, or a position. */
  from: string;
  until?: string;
  partition?: number;
  limit: number;
  filter: RecordFilter;
}

export interface RecordsAnswer {
  records: TopicRecord[];
  next: Position;
}

export function topicPath(topic: string): string {
  return `/api/streams/${encodeURIComponent(topic)}`;
}

export async function fetchRecords(
  tenant: string,
  request: RecordsRequest,
  signal?: AbortSignal,
): Promise<RecordsAnswer> {
  const { topic, from, until, partition, limit, filter } = request;
  const query = new URLSearchParams({ from, limit: String(limit), ...filterParams(filter) });
  if (until !== undefined) query.set("until", until);
  if (partition !== undefined) query.set("partition", String(partition));
  const answer = await send({ path: `${topicPath(topic)}?${query}`, tenant, ...(signal ? { signal } : {}) });
  const text = await answer.text().catch((cause: unknown) => {
    throw new Unreachable(cause);
  });
  return decodeRecords(text);
}

function filterParams({ key, text }: RecordFilter): Record<string, string> {
  return { ...(key === "" ? {} : { key }), ...(text === "" ? {} : { contains: text }) };
}

const page = object<{ next: string }>({ next: string });

export function decodeRecords(text: string): RecordsAnswer {
  const { next } = page(parsed(text), "answer");
  const records = rawParts(rawMembers(text).get("records") ?? "[]").map((record) => decodeRecord(record));
  return { records, next: positionOf(next) };
}

const place = object<{ partition: number; offset: number; timestamp: string }>({
  partition: number,
  offset: number,
  timestamp: string,
});

const encoded = object({
  key: nullable(string),
  key_base64: nullable(string),
  value_text: nullable(string),
  value_base64: nullable(string),
  headers: nullable(dictionary(json)),
});

/** Reads a record from its JSON text, which keeps the value as it was written. */
export function decodeRecord(text: string): TopicRecord {
  const value = parsed(text);
  const { key, key_base64, value_text, value_base64, headers } = encoded(value, "record");
  const raw = rawMembers(text).get("value") ?? "null";
  return {
    ...place(value, "record"),
    key: valueOf(key, key_base64, null),
    value: valueOf(value_text, value_base64, raw === "null" ? null : raw),
    headers: [...(headers ?? new Map<string, Json>())].flatMap(([name, given]) => headerLines(name, given)),
  };
}

function valueOf(text: string | null, base64: string | null, raw: string | null): RecordValue {
  if (text !== null) return { kind: "text", text };
  if (base64 !== null) return { kind: "bytes", bytes: Uint8Array.from(atob(base64), (byte) => byte.charCodeAt(0)) };
  return raw === null ? { kind: "none" } : { kind: "json", text: raw };
}

function headerLines(name: string, value: Json): [string, string][] {
  if (Array.isArray(value)) return value.flatMap((one) => headerLines(name, one));
  return [[name, typeof value === "string" ? value : JSON.stringify(value)]];
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function positionOf(text: string): Position {
  const pairs = text.split(",").map((pair): [number, number] => {
    const [, partition, offset] = /^(\d+):(\d+)$/.exec(pair) ?? [];
    if (partition === undefined || offset === undefined) throw new DecodeError("next", "a position", text);
    return [Number(partition), Number(offset)];
  });
  return new Map(pairs);
}

export function positionText(position: Position): string {
  return [...position].map(([partition, offset]) => `${partition}:${offset}`).join(",");
}

/** What a record to append says, in the form of the API. */
export interface NewRecord {
  key?: string;
  value?: unknown;
  value_text?: string;
  headers?: Record<string, string>;
  partition?: number;
}

export interface Appended {
  partition: number;
  offset: number;
}

const appended: Decoder<{ partitions: { partition: number; first: number }[] }> = object({
  partitions: (value, path) => {
    if (!Array.isArray(value)) throw new DecodeError(path, "an array", value);
    return value.map((entry, index) => object({ partition: number, first: number })(entry, `${path}[${index}]`));
  },
});

/** Appends one record whose text is that of a JSON value, so that its digits stay as they were typed. */
export async function appendRecord(tenant: string, topic: string, record: string): Promise<Appended> {
  const call = { path: `${topicPath(topic)}/records`, tenant, method: "POST", content: `[${record}]` } as const;
  const [first] = (await ask({ ...call, contentType: "application/json" }, appended)).value.partitions;
  if (first === undefined) throw new DecodeError("answer.partitions", "the place of the record", undefined);
  return { partition: first.partition, offset: first.first };
}

export type TailEvent =
  | { kind: "open" }
  | { kind: "record"; record: TopicRecord }
  | { kind: "gap" }
  | { kind: "end" }
  | { kind: "failed"; reason: string };

/** Follows a topic from a position or time on. Aborting `signal` closes it. */
export async function* openTail(
  tenant: string,
  topic: string,
  from: string,
  filter: RecordFilter,
  signal: AbortSignal,
  /** Only this one; empty: all. */
  partition = "",
): AsyncGenerator<TailEvent> {
  const query = new URLSearchParams({ from, ...filterParams(filter) });
  if (partition !== "") query.set("partition", partition);
  const answer = await send({ path: `${topicPath(topic)}?${query}`, tenant, accept: "text/event-stream", signal });
  if (answer.body === null) throw new Error("the server answered without a body");
  yield { kind: "open" };
  try {
    for await (const { event, data } of readEvents(answer.body)) {
      const decoded = decodeTailEvent(event, data);
      if (decoded) yield decoded;
    }
  } catch (cause) {
    // Browsers throw different errors when a connection breaks; all are a TypeError.
    throw cause instanceof TypeError ? new Unreachable(cause) : cause;
  }
}

const failure = object<{ cause: string }>({ cause: string });

/** One event of a tail, or null for a kind that has nothing to show. */
export function decodeTailEvent(event: string, data: string): TailEvent | null {
  switch (event) {
    case "record":
      return { kind: "record", record: decodeRecord(data) };
    case "gap":
      return { kind: "gap" };
    case "end":
      return { kind: "end" };
    case "failed":
      return { kind: "failed", reason: failure(parsed(data), "failed").cause };
    default:
      return null;
  }
}
