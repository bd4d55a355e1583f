/** Taps: records as they pass an edge of a job, sampled by the server and sent as events. */
import { type Decoder, dictionary, type Json, json, nullable, number, object, string, withDefault } from "./decode";
import { readEvents } from "./events";
import { Unreachable, send } from "./http";
import { pathOf } from "./jobs";

export interface TapRecord {
  value: Json;
  /** Base64 stands for bytes that are no text, `text` for text that is no JSON. */
  encoding: "json" | "text" | "base64";
  key: string | null;
  /** Name → text, or whatever else the server says of it. */
  headers: ReadonlyMap<string, Json>;
  /** The server has sent only its beginning. */
  truncated: boolean;
  /** Records that have passed the edge since the tap was opened. */
  seen: number;
  /** Samples that the server could not send. */
  dropped: number;
}

export type TapEvent =
  | { kind: "open" }
  | { kind: "record"; record: TapRecord }
  /** The job has ended. */
  | { kind: "end"; reason: string; message: string | null };

const parts = object({
  value: nullable(json),
  value_text: nullable(string),
  value_base64: nullable(string),
  key: nullable(string),
  key_base64: nullable(string),
});

const rest = object({
  headers: withDefault(dictionary(json), new Map<string, Json>()),
  truncated: (value) => value === true,
  seen: withDefault(number, 0),
  dropped: withDefault(number, 0),
});

/** A record in the form of those of topics. */
const record: Decoder<TapRecord> = (value, path) => {
  const { key, key_base64, value_text, value_base64, ...plain } = parts(value, path);
  const read = { ...rest(value, path), key: key ?? key_base64 };
  if (value_base64 !== null) return { ...read, value: value_base64, encoding: "base64" };
  if (value_text !== null) return { ...read, value: value_text, encoding: "text" };
  return { ...read, value: plain.value, encoding: "json" };
};

const end = object({ reason: string, message: nullable(string) });

/** Opens a tap and yields what passes, `rate` records a second at most. Aborting `signal` closes it. */
export async function* openTap(
  tenant: string,
  job: string,
  edge: { from: string; to: string },
  rate: number,
  signal: AbortSignal,
): AsyncGenerator<TapEvent> {
  const query = new URLSearchParams({ edge: `${edge.from},${edge.to}`, rate: String(rate) });
  const path = `${pathOf(job)}/tap?${query}`;
  const answer = await send({ path, tenant, accept: "text/event-stream", signal });
  if (answer.body === null) throw new Error("the server answered without a body");
  try {
    for await (const { event, data } of readEvents(answer.body)) {
      const decoded = decodeTapEvent(event, data);
      if (decoded) yield decoded;
    }
  } catch (cause) {
    // Browsers throw different errors when a connection breaks; all are a TypeError.
    throw cause instanceof TypeError ? new Unreachable(cause) : cause;
  }
}

/** One event of a tap, or null for a kind that this console does not know. */
export function decodeTapEvent(event: string, data: string): TapEvent | null {
  switch (event) {
    case "open":
      return { kind: "open" };
    case "record":
      return { kind: "record", record: record(JSON.parse(data), "record") };
    case "end":
      return { kind: "end", ...end(JSON.parse(data), "end") };
    default:
      return null;
  }
}
