/** Live queries: asked by POST, answered by a stream of events until the query ends. */
import { array, type Decoder, type Json, json, number, object, string, withDefault } from "./decode";
import { readEvents } from "./events";
import { ask, send, Unreachable } from "./http";

export type QueryEvent =
  | { kind: "meta"; id: string; columns: string[] }
  | { kind: "rows"; records: Json[] }
  | { kind: "end"; summary: Summary };

/** What the server says of a query that has ended. */
export interface Summary {
  cause: string;
  records_seen: number;
  matched: number;
  /** Rows the server left out because this client was too slow. */
  dropped: number;
  evaluation_errors: number;
  not_json: number;
  /** Offsets that were gone before they could be read. */
  skipped: number;
  clamped: Clamped[];
  errors: Trouble[];
}

/** A setting that was given smaller than asked for. */
export interface Clamped {
  setting: string;
  given: number;
}

export interface Trouble {
  error: string;
  resolution: string;
}

/** A query the server is answering for somebody, perhaps for another window. */
export interface Running {
  id: string;
  text: string;
}

const meta = object({ id: string, columns: withDefault(array(string), []) });

const rows = object({ records: array(json) });

const summary: Decoder<Summary> = object<Summary>({
  cause: string,
  records_seen: withDefault(number, 0),
  matched: withDefault(number, 0),
  dropped: withDefault(number, 0),
  evaluation_errors: withDefault(number, 0),
  not_json: withDefault(number, 0),
  skipped: withDefault(number, 0),
  clamped: withDefault(array(object<Clamped>({ setting: string, given: number })), []),
  errors: withDefault(array(object<Trouble>({ error: string, resolution: string })), []),
});

const running = array(object<Running>({ id: string, text: string }));

/** Asks `text` and yields what the server answers. Aborting `signal` ends the query without its summary. */
export async function* askLive(tenant: string, text: string, signal: AbortSignal): AsyncGenerator<QueryEvent> {
  const answer = await send({
    path: "/api/queries",
    tenant,
    method: "POST",
    // Rows that a slow page misses are counted; the query lives on.
    body: { query: text, deliver: "sse", on_slow: "drop_oldest" },
    accept: "text/event-stream",
    signal,
  });
  if (answer.body === null) throw new Error("the server answered without a body");
  try {
    for await (const { event, data } of readEvents(answer.body)) {
      const decoded = decodeEvent(event, data);
      if (decoded) yield decoded;
    }
  } catch (cause) {
    // What a browser throws when a connection breaks differs from browser to browser, but is a TypeError in all.
    throw cause instanceof TypeError ? new Unreachable(cause) : cause;
  }
}

/** One event of a query's answer, or null for a kind that this console does not know. */
export function decodeEvent(event: string, data: string): QueryEvent | null {
  switch (event) {
    case "meta":
      return { kind: "meta", ...meta(JSON.parse(data), "meta") };
    case "rows":
      return { kind: "rows", ...rows(JSON.parse(data), "rows") };
    case "end":
      return { kind: "end", summary: summary(JSON.parse(data), "end") };
    default:
      return null;
  }
}

export async function listRunning(tenant: string): Promise<Running[]> {
  return (await ask({ path: "/api/queries", tenant }, running)).value;
}

/** Ends a query; its stream then closes with its summary. */
export async function kill(tenant: string, id: string): Promise<void> {
  await send({ path: `/api/queries/${encodeURIComponent(id)}`, tenant, method: "DELETE" });
}
