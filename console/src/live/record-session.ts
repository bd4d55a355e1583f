/**
 * One open tail of a topic, or of several, with the records it has brought.
 *
 * Owner: a page; it has at most one. Records go into a bounded ring; the page is told at most once per frame. While the
 * tail is paused, records are counted and not kept.
 */
import type { TailEvent, TopicRecord } from "../api/records";
import { FramePainter } from "./frame";
import { Ring } from "./ring";

/** Records kept for the table; older ones make room. */
export const TAIL_RECORDS_MAX = 500;

export type TailState =
  | { kind: "opening" }
  | { kind: "live" }
  /** `missed` records have been sent and not kept since. */
  | { kind: "paused"; missed: number }
  | { kind: "broken"; reason: string };

/** A record with the topic that it is of. */
export interface TailRecord extends TopicRecord {
  topic: string;
}

export interface TailSnapshot {
  state: TailState;
  /** The newest records, oldest first. */
  records: readonly TailRecord[];
  /** Records that were kept at some time. */
  received: number;
}

export const TAIL_OPENING: TailSnapshot = { state: { kind: "opening" }, records: [], received: 0 };

/** Name of a topic, and its events. */
export type TailSource = readonly [topic: string, open: (signal: AbortSignal) => AsyncGenerator<TailEvent>];

export class RecordSession {
  #state: TailState = { kind: "opening" };
  readonly #records = new Ring<TailRecord>(TAIL_RECORDS_MAX);
  readonly #abort = new AbortController();
  readonly #painter: FramePainter;

  constructor(
    private readonly sources: readonly TailSource[],
    onChange: (snapshot: TailSnapshot) => void,
  ) {
    this.#painter = new FramePainter(() => {
      onChange(this.snapshot());
    });
  }

  /** Opens the tails and follows them. Never throws: how it ended is in the state. */
  async run(): Promise<void> {
    this.#painter.request();
    await Promise.all(this.sources.map((source) => this.#follow(source)));
  }

  async #follow([topic, open]: TailSource): Promise<void> {
    try {
      for await (const event of open(this.#abort.signal)) this.#take(topic, event);
      this.#break("the server closed the tail");
    } catch (cause) {
      if (!this.#abort.signal.aborted) this.#break(cause instanceof Error ? cause.message : String(cause));
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

  snapshot(): TailSnapshot {
    return { state: this.#state, records: this.#records.toArray(), received: this.#records.pushed };
  }

  #take(topic: string, event: TailEvent): void {
    switch (event.kind) {
      case "open":
        if (this.#state.kind === "opening") this.#become({ kind: "live" });
        break;
      case "record":
        if (this.#state.kind === "paused") this.#state = { kind: "paused", missed: this.#state.missed + 1 };
        else this.#records.push({ ...event.record, topic });
        this.#painter.request();
        break;
      case "failed":
        this.#break(event.reason);
        break;
      case "gap":
      case "end":
        break;
    }
  }

  /** One tail that breaks ends all: a page that shows a part would look whole. */
  #break(reason: string): void {
    if (this.#state.kind === "broken" || this.#abort.signal.aborted) return;
    this.#become({ kind: "broken", reason });
    this.#abort.abort();
  }

  #become(state: TailState): void {
    this.#state = state;
    this.#painter.request();
  }
}
