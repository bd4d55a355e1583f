/** The last five minutes of the server's figures, one sample a second, as columns that a chart can draw. */
import type { Stats } from "../api/stats";

export const HISTORY_S = 300;

/** A gap longer than this is drawn as one: the line stops and starts again. */
const GAP_S = 3;

/** What is kept of each sample. Null where the server had nothing to measure. */
const COLUMNS = {
  accepted: (stats: Stats) => stats.connect.accepted_rate_per_s,
  appended: (stats: Stats) => stats.log.append_rate_per_s,
  updates: (stats: Stats) => stats.context.updates_rate_per_s,
  accept_p99: (stats: Stats) => stats.connect.latency_ms.p99,
  sync_p99: (stats: Stats) => stats.log.sync_p99_ms,
  update_p99: (stats: Stats) => stats.context.latency_ms.p99,
} satisfies Record<string, (stats: Stats) => number | null>;

export type ColumnName = keyof typeof COLUMNS;

/** Immutable: every sample makes a new history, so that a view knows by identity whether it has changed. */
export class History {
  static readonly empty = new History([], {});

  private constructor(
    /** Seconds since 1970, ascending. */
    readonly times_s: readonly number[],
    private readonly columns: Partial<Record<ColumnName, readonly (number | null)[]>>,
  ) {}

  /** This history with one more sample, and without what is older than {@link HISTORY_S}. */
  with(stats: Stats, at_s: number): History {
    const last = this.times_s.at(-1);
    if (last !== undefined && at_s <= last) return this;
    const gap = last !== undefined && at_s - last > GAP_S;
    const keepFrom = this.times_s.findIndex((time) => time > at_s - HISTORY_S);
    const kept = <T>(column: readonly T[]): readonly T[] => (keepFrom < 0 ? [] : column.slice(keepFrom));
    const times = [...kept(this.times_s), ...(gap ? [last + 1] : []), at_s];
    const columns: Partial<Record<ColumnName, readonly (number | null)[]>> = {};
    for (const [name, read] of Object.entries(COLUMNS) as [ColumnName, (stats: Stats) => number | null][]) {
      columns[name] = [...kept(this.column(name)), ...(gap ? [null] : []), read(stats)];
    }
    return new History(times, columns);
  }

  column(name: ColumnName): readonly (number | null)[] {
    return this.columns[name] ?? [];
  }
}
