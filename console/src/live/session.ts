/**
 * One live query, from asking to its end, with the rows it has brought.
 *
 * Owner: the query page; a page has at most one. Rows go into a bounded ring; whoever watches is told at most once
 * per frame and takes a snapshot.
 */
import type { Json, JsonObject } from "../api/decode";
import { type Finding, Refused } from "../api/http";
import { askLive, kill, type QueryEvent } from "../api/queries";
import type { Summary, WindowMeta } from "../api/query-meta";
import type { RangeRequest } from "../query/range";
import { FramePainter } from "./frame";
import { Ring } from "./ring";

/** Rows kept for the table and the chart; older ones make room. */
export const ROWS_MAX = 2_000;
/** Columns that a query without a list of its own may grow to. */
export const COLUMNS_MAX = 60;
/** How long a query that was told to stop may take to send its summary. */
const STOP_MAX_MS = 2_000;

export interface Row {
  /** From 1, in the order of arrival. */
  number: number;
  /** When this page received it, or when its window was given, in milliseconds since 1970. */
  at_ms: number;
  /** The number of its window, if the query has windows. */
  window: number | null;
  /** Its columns. A record that is no JSON object has a single one, {@link WHOLE_RECORD}. */
  record: JsonObject;
}

export const WHOLE_RECORD = "record";

export type QueryState =
  | { kind: "idle" }
  | { kind: "asking" }
  | { kind: "live"; id: string; since_ms: number }
  | { kind: "stopping"; id: string; since_ms: number }
  /** Without a summary if the server did not send one in time. */
  | { kind: "ended"; summary: Summary | null }
  | { kind: "refused"; text: string; reason: string; findings: readonly Finding[] }
  | { kind: "broken"; reason: string };

export interface Snapshot {
  state: QueryState;
  /** The server's name for the query, from its first answer on. */
  id: string | null;
  columns: readonly string[];
  /** The newest rows, oldest first. */
  rows: readonly Row[];
  received: number;
  /** Rows received but no longer kept. */
  dropped: number;
  /** The latest window that was given, if the query has windows. */
  window: WindowMeta | null;
}

export const IDLE: Snapshot = {
  state: { kind: "idle" },
  id: null,
  columns: [],
  rows: [],
  received: 0,
  dropped: 0,
  window: null,
};

/** What a session needs of the server; the tests' only door into it. */
export interface Server {
  ask: (text: string, signal: AbortSignal) => AsyncGenerator<QueryEvent>;
  kill: (id: string) => Promise<void>;
}

export function serverOf(tenant: string, range: RangeRequest): Server {
  return { ask: (text, signal) => askLive(tenant, text, range, signal), kill: (id) => kill(tenant, id) };
}

export class QuerySession {
  #state: QueryState = { kind: "asking" };
  #id: string | null = null;
  readonly #rows = new Ring<Row>(ROWS_MAX);
  readonly #columns = new Set<string>();
  /** Whether the query names its columns; else they are gathered from the rows. */
  #columnsAreFixed = false;
  #window: WindowMeta | null = null;
  readonly #abort = new AbortController();
  readonly #painter: FramePainter;
  #stopTimer = 0;

  constructor(
    private readonly server: Server,
    private readonly text: string,
    onChange: (snapshot: Snapshot) => void,
  ) {
    this.#painter = new FramePainter(() => {
      onChange(this.snapshot());
    });
  }

  /** Asks, and follows the answer to its end. Never throws: how it ended is in the state. */
  async run(): Promise<void> {
    this.#painter.request();
    try {
      for await (const event of this.server.ask(this.text, this.#abort.signal)) this.#take(event);
      if (this.#state.kind !== "ended") {
        this.#become({ kind: "broken", reason: "the server closed the stream before the query had ended" });
      }
    } catch (cause) {
      this.#become(this.#failure(cause));
    } finally {
      clearTimeout(this.#stopTimer);
    }
  }

  /** Ends the query. Its summary may still follow. */
  stop(): void {
    if (this.#state.kind === "asking") this.#abort.abort();
    if (this.#state.kind !== "live") return;
    const { id, since_ms } = this.#state;
    this.#become({ kind: "stopping", id, since_ms });
    this.#stopTimer = window.setTimeout(() => {
      this.#abort.abort();
    }, STOP_MAX_MS);
    this.server.kill(id).catch(() => {
      this.#abort.abort();
    });
  }

  /** Nobody watches any more: leaving ends the query. */
  close(): void {
    this.#abort.abort();
    this.#painter.end();
  }

  snapshot(): Snapshot {
    return {
      state: this.#state,
      id: this.#id,
      columns: [...this.#columns],
      rows: this.#rows.toArray(),
      received: this.#rows.pushed,
      dropped: this.#rows.dropped,
      window: this.#window,
    };
  }

  #take(event: QueryEvent): void {
    switch (event.kind) {
      case "meta":
        this.#id = event.id;
        this.#columnsAreFixed = event.columns.length > 0;
        for (const column of event.columns) this.#columns.add(column);
        this.#become({ kind: "live", id: event.id, since_ms: Date.now() });
        break;
      case "rows":
        this.#keep(event.records, Date.now(), null);
        break;
      case "window":
        this.#window = event.window;
        this.#keep(event.records, event.window.end_ms ?? event.window.emit_time_ms, event.window.number);
        break;
      case "end":
        this.#become({ kind: "ended", summary: event.summary });
        break;
    }
  }

  #keep(records: readonly Json[], at_ms: number, window: number | null): void {
    for (const json of records) {
      const isObject = typeof json === "object" && json !== null && !Array.isArray(json);
      const record = isObject ? json : { [WHOLE_RECORD]: json };
      this.#rows.push({ number: this.#rows.pushed + 1, at_ms, window, record });
      if (!this.#columnsAreFixed) this.#gatherColumns(record);
    }
    this.#painter.request();
  }

  #gatherColumns(record: JsonObject): void {
    for (const name of Object.keys(record)) {
      if (this.#columns.size < COLUMNS_MAX) this.#columns.add(name);
    }
  }

  #failure(cause: unknown): QueryState {
    if (this.#abort.signal.aborted) return { kind: "ended", summary: null };
    if (cause instanceof Refused) {
      return { kind: "refused", text: this.text, reason: cause.message, findings: cause.findings };
    }
    return { kind: "broken", reason: cause instanceof Error ? cause.message : String(cause) };
  }

  #become(state: QueryState): void {
    this.#state = state;
    this.#painter.request();
  }
}

/**
 * Rows in the order in which they are read: the newest first, but those that came together as one result (of a window,
 * or at the end) in the order that the query gave them.
 */
export function readingOrder(rows: readonly Row[], inResults: boolean): Row[] {
  if (!inResults) return rows.toReversed();
  const results: Row[][] = [];
  for (const row of rows) {
    const last = results.at(-1);
    if (last !== undefined && last[0]?.window === row.window) last.push(row);
    else results.push([row]);
  }
  return results.reverse().flat();
}
