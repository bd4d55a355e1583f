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
  /** Text columns with few enough different values to be a line each; the device before the others. */
  categorical: string[];
}

const ISO_TIME = /^\d{4}-\d\d-\d\d[T ]\d\d/;

/** What the column is called that says which device sent a record; there may be any number of devices. */
const DEVICE = ["$key", "device"];

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
      if (different > 1 && DEVICE.includes(name)) result.categorical.unshift(name);
      else if (different > 1 && different <= LINES_MAX) result.categorical.push(name);
    }
  }
  return result;
}

/**
 * The columns that tell the rows of one result apart: text before other columns, as few as will do from the left.
 * None if there is nothing to tell apart, or if no columns do. Each of `results` is the rows of one window.
 */
export function keyColumns(columns: readonly string[], results: readonly (readonly Row[])[]): string[] {
  const several = results.filter((rows) => rows.length > 1);
  if (several.length === 0) return [];
  const isText = (name: string): boolean =>
    several.every((rows) => rows.every(({ record }) => typeof record[name] !== "number"));
  const candidates = [...columns.filter(isText), ...columns.filter((name) => !isText(name))];
  const keys: string[] = [];
  for (const name of candidates) {
    keys.push(name);
    if (several.every((rows) => new Set(rows.map((row) => labelOf(row, keys))).size === rows.length)) return keys;
  }
  return [];
}

/** The rows of each window, in order. */
export function byWindow(rows: readonly Row[]): Row[][] {
  const windows = new Map<number | null, Row[]>();
  for (const row of rows) {
    const window = windows.get(row.window);
    if (window === undefined) windows.set(row.window, [row]);
    else window.push(row);
  }
  return [...windows.values()];
}

export interface Lines {
  /** Seconds since 1970, ascending, each once. */
  times_s: number[];
  lines: { label: string; values: (number | null)[] }[];
  /** How many lines more there would have been than {@link LINES_MAX}. */
  hidden: number;
}

export interface LinesChoice {
  columns: readonly string[];
  /** A column of moments; null: when the row came, or its window was given. */
  time: string | null;
  /** A line for each combination of their values. */
  by: readonly string[];
}

/** The values of the columns over time. Two values of one line at one moment: the later row wins. */
export function linesOf(rows: readonly Row[], { columns, time, by }: LinesChoice): Lines {
  const points = new Map<number, Map<string, number>>();
  const labels = new Set<string>();
  const hidden = new Set<string>();
  for (const row of rows) {
    const time_ms = time === null ? row.at_ms : momentOf(row.record[time]);
    if (time_ms === null) continue;
    for (const column of columns) {
      const value = row.record[column];
      if (typeof value !== "number") continue;
      const label = lineLabel(row, column, columns.length, by);
      if (!labels.has(label) && labels.size === LINES_MAX) {
        hidden.add(label);
        continue;
      }
      labels.add(label);
      const moment = points.get(time_ms / 1000) ?? new Map<string, number>();
      moment.set(label, value);
      points.set(time_ms / 1000, moment);
    }
  }
  const sorted = [...points].sort(([a], [b]) => a - b);
  const ordered = by.length > 0 ? [...labels].sort() : [...labels];
  return {
    times_s: sorted.map(([moment]) => moment),
    lines: ordered.map((label) => ({ label, values: sorted.map(([, values]) => values.get(label) ?? null) })),
    hidden: hidden.size,
  };
}

function lineLabel(row: Row, column: string, columns: number, by: readonly string[]): string {
  if (by.length === 0) return column;
  return columns > 1 ? `${labelOf(row, by)} ${column}` : labelOf(row, by);
}

/** The values of the columns, as a name for what they tell apart. */
export function labelOf(row: Row, columns: readonly string[]): string {
  return columns.map((name) => textOf(row.record[name])).join(" · ");
}

function momentOf(value: Json | undefined): number | null {
  const moment = typeof value === "number" ? value : typeof value === "string" ? Date.parse(value) : Number.NaN;
  return Number.isNaN(moment) ? null : moment;
}

function textOf(value: Json | undefined): string {
  if (value === undefined || value === null) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}
