/**
 * One open tap, with the records it has brought.
 *
 * Owner: the page of a job; it has at most one. Records go into a bounded ring; the page is told at most once per
 * frame. While the tap is paused, records are counted and not kept.
 */
import type { Json, JsonObject } from "../api/decode";
import type { TapEvent, TapRecord } from "../api/tap";
import { FramePainter } from "./frame";
import { Ring } from "./ring";
import { COLUMNS_MAX, type Row, WHOLE_RECORD } from "./session";

/** Records kept for the table; older ones make room. */
export const TAP_ROWS_MAX = 500;
/** Columns of what stands beside a record's value. */
export const KEY = "$key";
const HEADERS = "$headers";

export type TapState =
  | { kind: "opening" }
  | { kind: "live" }
  /** `missed` records have been sent and not kept since. */
  | { kind: "paused"; missed: number }
  /** The job has ended. */
  | { kind: "ended"; reason: string; message: string | null }
  | { kind: "broken"; reason: string };

export interface TapSnapshot {
  state: TapState;
  columns: readonly string[];
  /** The newest records, oldest first. */
  rows: readonly Row[];
  /** Records that were kept at some time. */
  received: number;
  /** Records that have passed the edge. */
  seen: number;
  /** Samples that the server could not send. */
  dropped: number;
}

export const TAP_OPENING: TapSnapshot = {
  state: { kind: "opening" },
  columns: [],
  rows: [],
  received: 0,
  seen: 0,
  dropped: 0,
};

export type TapSource = (signal: AbortSignal) => AsyncGenerator<TapEvent>;

export class TapSession {
  #state: TapState = { kind: "opening" };
  readonly #rows = new Ring<Row>(TAP_ROWS_MAX);
  readonly #columns = new Set<string>([KEY]);
  #hasHeaders = false;
  #seen = 0;
  #dropped = 0;
  readonly #abort = new AbortController();
  readonly #painter: FramePainter;

  constructor(
    private readonly source: TapSource,
    onChange: (snapshot: TapSnapshot) => void,
  ) {
    this.#painter = new FramePainter(() => {
      onChange(this.snapshot());
    });
  }

  /** Opens the tap and follows it to its end. Never throws: how it ended is in the state. */
  async run(): Promise<void> {
    this.#painter.request();
    try {
      for await (const event of this.source(this.#abort.signal)) this.#take(event);
      if (this.#state.kind !== "ended") {
        this.#become({ kind: "broken", reason: "the server closed the tap before the job had ended" });
      }
    } catch (cause) {
      if (!this.#abort.signal.aborted) {
        this.#become({ kind: "broken", reason: cause instanceof Error ? cause.message : String(cause) });
      }
    }
  }

  pause(): void {
    if (this.#state.kind === "live") this.#become({ kind: "paused", missed: 0 });
  }

  resume(): void {
    if (this.#state.kind === "paused") this.#become({ kind: "live" });
  }

  close(): void {
    this.#abort.abort();
    this.#painter.end();
  }

  snapshot(): TapSnapshot {
    return {
      state: this.#state,
      columns: this.#hasHeaders ? [...this.#columns, HEADERS] : [...this.#columns],
      rows: this.#rows.toArray(),
      received: this.#rows.pushed,
      seen: this.#seen,
      dropped: this.#dropped,
    };
  }

  #take(event: TapEvent): void {
    switch (event.kind) {
      case "open":
        this.#become({ kind: "live" });
        break;
      case "record":
        this.#seen = event.record.seen;
        this.#dropped = event.record.dropped;
        if (this.#state.kind === "paused") this.#state = { kind: "paused", missed: this.#state.missed + 1 };
        else this.#keep(event.record);
        this.#painter.request();
        break;
      case "end":
        this.#become({ kind: "ended", reason: event.reason, message: event.message });
        break;
    }
  }

  #keep(tapped: TapRecord): void {
    const fields = fieldsOf(tapped);
    for (const name of Object.keys(fields)) {
      if (this.#columns.size < COLUMNS_MAX) this.#columns.add(name);
    }
    const record: JsonObject = { [KEY]: tapped.key, ...fields };
    if (tapped.headers.size > 0) {
      this.#hasHeaders = true;
      record[HEADERS] = Object.fromEntries(tapped.headers);
    }
    this.#rows.push({ number: this.#rows.pushed + 1, at_ms: Date.now(), window: null, record });
  }

  #become(state: TapState): void {
    this.#state = state;
    this.#painter.request();
  }
}

/** The columns of a record: the members of an object, or one for anything else. */
function fieldsOf({ value, encoding, truncated }: TapRecord): JsonObject {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  if (isObject) return value;
  return { [WHOLE_RECORD]: encoding === "json" ? value : asText(value, encoding, truncated) };
}

function asText(value: Json, encoding: TapRecord["encoding"], truncated: boolean): Json {
  if (typeof value !== "string") return value;
  const text = encoding === "base64" ? `base64: ${value}` : value;
  return truncated ? `${text}… (only its beginning was sent)` : text;
}
