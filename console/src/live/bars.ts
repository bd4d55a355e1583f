/** Rows as bars: a group of bars for each thing that the rows tell of, a bar for each column. */
import { clock } from "../format";
import { labelOf } from "./series";
import type { Row } from "./session";

/** More groups than this are not read. */
export const GROUPS_MAX = 40;

export interface BarGroup {
  label: string;
  /** In the order of the columns. */
  values: (number | null)[];
}

export interface Bars {
  groups: BarGroup[];
  /** How many groups more there would have been. */
  hidden: number;
  /** What the axis reaches from and to; zero is always on it. */
  low: number;
  high: number;
}

/**
 * A group for each combination of values of `keys`: of several rows the last counts. Without keys each row is a group
 * of its own, named by its time, and only the newest are shown.
 */
export function barsOf(rows: readonly Row[], columns: readonly string[], keys: readonly string[]): Bars {
  const groups = new Map<string, BarGroup>();
  for (const row of rows) {
    const label = keys.length > 0 ? labelOf(row, keys) : clock(row.at_ms);
    const values = columns.map((name) => {
      const value = row.record[name];
      return typeof value === "number" ? value : null;
    });
    groups.set(keys.length > 0 ? label : String(row.number), { label, values });
  }
  const all = [...groups.values()];
  const shown = keys.length > 0 ? all.slice(0, GROUPS_MAX) : all.slice(-GROUPS_MAX);
  const values = shown.flatMap((group) => group.values).filter((value) => value !== null);
  return {
    groups: shown,
    hidden: all.length - shown.length,
    low: Math.min(0, ...values),
    high: Math.max(0, ...values),
  };
}

/** Where a bar begins and how long it is, as shares of the axis. */
export function extent(value: number, { low, high }: Pick<Bars, "low" | "high">): { from: number; size: number } {
  const span = high - low || 1;
  return { from: (Math.min(0, value) - low) / span, size: Math.abs(value) / span };
}
