/** Live queries: asked by POST, answered by a stream of events until the query ends. */
import { array, type Json, json, nullable, object, string, withDefault } from "./decode";
import { readEvents } from "./events";
import { ask, type Finding, findings, Refused, send, Unreachable } from "./http";
import type { RangeRequest } from "../query/range";
import { type Summary, summary, type WindowMeta, windowMeta } from "./query-meta";

export type QueryEvent =
  | { kind: "meta"; id: string; columns: string[] }
  | { kind: "rows"; records: Json[] }
  /** The result of one window, perhaps without any row. */
  | { kind: "window"; records: Json[]; window: WindowMeta }
  | { kind: "end"; summary: Summary };

/** A query the server is answering for somebody, perhaps for another window, or one that has ended and waits for its reader. */
export interface Running {
  id: string;
  text: string;
  /** Why it has ended; null while it lives. */
  cause: string | null;
}

const meta = object({ id: string, columns: withDefault(array(string), []) });

const rows = object({ records: array(json) });

const windowResult = object({ records: array(json), meta: object({ window: windowMeta }) });

const checked = object({ hints: withDefault(findings("hint"), []) });

const running = array(object<Running>({ id: string, text: string, cause: nullable(string) }));

/** Asks `text` and yields what the server answers. Aborting `signal` ends the query without its summary. */
export async function* askLive(
  tenant: string,
  text: string,
  range: RangeRequest,
  signal: AbortSignal,
): AsyncGenerator<QueryEvent> {
  const answer = await send({
    path: "/api/queries",
    tenant,
    method: "POST",
    // Rows that a slow page misses are counted; the query lives on.
    body: { query: text, ...range, with_device: true, deliver: "sse", on_slow: "drop_oldest" },
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
    case "window": {
      const { records, meta } = windowResult(JSON.parse(data), "window");
      return { kind: "window", records, window: meta.window };
    }
    case "end":
      return { kind: "end", summary: summary(JSON.parse(data), "end") };
    default:
      return null;
  }
}

export async function listRunning(tenant: string): Promise<Running[]> {
  return (await ask({ path: "/api/queries", tenant }, running)).value;
}

/** What can be told of a query while it lives. */
export async function fetchProgress(tenant: string, id: string): Promise<Summary> {
  return (await ask({ path: `/api/queries/${encodeURIComponent(id)}`, tenant }, summary)).value;
}

/** Ends a query; its stream then closes with its summary. One that has ended is forgotten with its result. */
export async function kill(tenant: string, id: string): Promise<void> {
  await send({ path: `/api/queries/${encodeURIComponent(id)}`, tenant, method: "DELETE" });
}

/** Where `text` is wrong, or odd if the server would take it. */
export async function validate(tenant: string, text: string, signal: AbortSignal): Promise<readonly Finding[]> {
  try {
    const answer = await send({ path: "/api/queries/validate", tenant, method: "POST", body: { query: text }, signal });
    return answer.status === 204 ? [] : checked(await answer.json(), "answer").hints;
  } catch (cause) {
    if (cause instanceof Refused) return cause.findings;
    throw cause;
  }
}
