/** The last five minutes of the server's figures, one sample a second, as columns that a chart can draw. */
import type { RateSample, Stats } from "../api/stats";

/** As long as the server keeps samples. */
export const HISTORY_S = 300;

/** A gap longer than this is drawn as one: the line stops and starts again. */
const GAP_S = 3;
/** Seconds that are asked for again, so that none is missing between two answers. */
const OVERLAP_S = 2;

/** What is kept of each sample. Null where the server had nothing to measure. */
const COLUMNS = {
  accepted: (sample: RateSample) => sample.accepted_rate_per_s,
  appended: (sample: RateSample) => sample.append_rate_per_s,
  updates: (sample: RateSample) => sample.updates_rate_per_s,
  accept_p99: (sample: RateSample) => sample.accept_p99_ms,
  sync_p99: (sample: RateSample) => sample.sync_p99_ms,
  update_p99: (sample: RateSample) => sample.update_p99_ms,
} satisfies Record<string, (sample: RateSample) => number | null>;

export type ColumnName = keyof typeof COLUMNS;

/** A sample at its second since 1970; without one, the gap before the next. */
interface Point {
  time_s: number;
  sample: RateSample | null;
}

/** A start of the server: what it calls the moment, and when that was on this machine's clock. */
interface Start {
  started_at: string;
  time_s: number;
}

/** Immutable: every answer makes a new history, so that a view knows by identity whether it has changed. */
export class History {
  static readonly empty = new History([], null);

  /** Seconds since 1970, ascending. */
  readonly times_s: readonly number[];

  private constructor(
    private readonly points: readonly Point[],
    private readonly start: Start | null,
  ) {
    this.times_s = points.map(({ time_s }) => time_s);
  }

  /** How many seconds the server has to be asked for. */
  missing_s(now_s: number): number {
    const last = this.times_s.at(-1);
    if (last === undefined) return HISTORY_S;
    return Math.min(HISTORY_S, Math.max(0, now_s - last) + OVERLAP_S);
  }

  /** This history with the samples of an answer that are newer, and without what is older than {@link HISTORY_S}. */
  with({ started_at, uptime_s, history }: Pick<Stats, "started_at" | "uptime_s" | "history">, at_s: number): History {
    const start = this.start?.started_at === started_at ? this.start : { started_at, time_s: at_s - uptime_s };
    const points = [...this.points];
    for (const sample of history) {
      const time_s = start.time_s + sample.uptime_s;
      const last = points.at(-1)?.time_s ?? -Infinity;
      if (time_s <= last) continue;
      if (points.length > 0 && time_s - last > GAP_S) points.push({ time_s: last + 1, sample: null });
      points.push({ time_s, sample });
    }
    const end = points.at(-1)?.time_s ?? 0;
    return points.length === this.points.length
      ? this
      : new History(
          points.filter(({ time_s }) => time_s > end - HISTORY_S),
          start,
        );
  }

  column(name: ColumnName): readonly (number | null)[] {
    return this.points.map(({ sample }) => (sample === null ? null : COLUMNS[name](sample)));
  }
}
