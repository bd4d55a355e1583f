/** Live rows as lines of a chart: which columns can be drawn, against what time, split by what. */
import type { Json } from "../api/decode";
import type { Row } from "./session";

/** More lines than this cannot be told apart. */
export const LINES_MAX = 8;

export interface ChartColumns {
  /** Columns that hold numbers. */
  numeric: string[];
  /** Columns that hold moments: ISO 8601 text, or the record's own time. */
  temporal: string[];
  /** Text columns with few enough different values to be a line each. */
  categorical: string[];
}

const ISO_TIME = /^\d{4}-\d\d-\d\d[T ]\d\d/;

/** The server's name for a record's own time, in milliseconds since 1970. */
const RECORD_TIME = "$timestamp";

export function chartColumns(columns: readonly string[], rows: readonly Row[]): ChartColumns {
  const result: ChartColumns = { numeric: [], temporal: [], categorical: [] };
  for (const name of columns) {
    const values = rows.map((row) => row.record[name]).filter((value) => value !== undefined && value !== null);
    if (values.length === 0) continue;
    if (name === RECORD_TIME) result.temporal.push(name);
    else if (values.every((value) => typeof value === "number")) result.numeric.push(name);
    else if (values.every((value) => typeof value === "string" && ISO_TIME.test(value))) result.temporal.push(name);
    else if (values.every((value) => typeof value === "string")) {
      const different = new Set(values).size;
      if (different > 1 && different <= LINES_MAX) result.categorical.push(name);
    }
  }
  return result;
}

export interface Lines {
  /** Seconds since 1970, ascending, each once. */
  times_s: number[];
  lines: { label: string; values: (number | null)[] }[];
}

/**
 * The values of `column` over `time` (null: the time of arrival), a line for each value of `by` (null: one line).
 * Two values of one line at one moment: the later row wins.
 */
export function linesOf(rows: readonly Row[], column: string, time: string | null, by: string | null): Lines {
  const points = new Map<number, Map<string, number>>();
  const labels = new Set<string>();
  for (const { at_ms, record } of rows) {
    const value = record[column];
    const time_ms = time === null ? at_ms : momentOf(record[time]);
    if (typeof value !== "number" || time_ms === null) continue;
    const label = by === null ? column : textOf(record[by]);
    if (!labels.has(label) && labels.size === LINES_MAX) continue;
    labels.add(label);
    const moment = points.get(time_ms / 1000) ?? new Map<string, number>();
    moment.set(label, value);
    points.set(time_ms / 1000, moment);
  }
  const sorted = [...points].sort(([a], [b]) => a - b);
  return {
    times_s: sorted.map(([moment]) => moment),
    lines: [...labels].sort().map((label) => ({
      label,
      values: sorted.map(([, values]) => values.get(label) ?? null),
    })),
  };
}

function momentOf(value: Json | undefined): number | null {
  const moment = typeof value === "number" ? value : typeof value === "string" ? Date.parse(value) : Number.NaN;
  return Number.isNaN(moment) ? null : moment;
}

function textOf(value: Json | undefined): string {
  return typeof value === "string" ? value : "–";
}
