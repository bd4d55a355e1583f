/** What the chart of an answer shows: guessed from the answer, unless the address bar says otherwise. */
import { byWindow, chartColumns, keyColumns } from "../live/series";
import type { Row, Snapshot } from "../live/session";

export type ChartKind = "line" | "bar";

/** `rows` come one by one; `windows` have several rows at a time; `once` is a single result at the end. */
export type Shape = "rows" | "windows" | "once";

export interface ChartChoice {
  kind: ChartKind;
  columns: string[];
  time: string | null;
  by: string[];
  /** All that can be chosen. */
  options: { columns: string[]; times: string[]; by: string[][] };
}

/** In the address bar: none, even where something would be guessed. */
export const NONE = "-";

export function shapeOf({ state, window }: Pick<Snapshot, "state" | "window">, rows: readonly Row[]): Shape {
  if (window !== null) return "windows";
  const first = rows[0];
  const atOnce = first !== undefined && rows.length > 1 && rows.every((row) => row.at_ms === first.at_ms);
  return state.kind === "ended" && atOnce ? "once" : "rows";
}

/** Null if no column holds numbers. */
export function chartChoice(
  columns: readonly string[],
  rows: readonly Row[],
  shape: Shape,
  params: URLSearchParams,
): ChartChoice | null {
  const available = chartColumns(columns, rows);
  const keys = shape === "rows" ? [] : keyColumns(columns, byWindow(rows));
  const measures = available.numeric.filter((name) => !keys.includes(name));
  const numeric = measures.length > 0 ? measures : available.numeric;
  const [first] = numeric;
  if (first === undefined) return null;
  const by = splits(available.categorical, keys);
  const wanted = (params.get("chart") ?? "").split(",");
  const chosen = numeric.filter((name) => wanted.includes(name));
  const [time] = available.temporal;
  const [split] = by;
  return {
    kind: kindOf(params.get("as")) ?? (shape === "once" ? "bar" : "line"),
    columns: chosen.length > 0 ? chosen : [first],
    // What a device says of the time of its measurement is closer to the matter than when that came here.
    time: pick(available.temporal, params.get("over"), shape === "rows" ? (time ?? null) : null),
    by: pick(by, params.get("by"), split ?? null) ?? [],
    options: { columns: numeric, times: available.temporal, by },
  };
}

/** The ways to split rows into lines: by what tells the rows of a window apart, then by each text column. */
function splits(categorical: readonly string[], keys: readonly string[]): string[][] {
  const single = categorical.filter((name) => keys.length !== 1 || name !== keys[0]).map((name) => [name]);
  return keys.length > 0 ? [[...keys], ...single] : single;
}

function kindOf(text: string | null): ChartKind | null {
  return text === "line" || text === "bar" ? text : null;
}

/** The option that is wanted; without one, or with one that is not there, `guess`. */
function pick<T extends string | string[]>(options: readonly T[], wanted: string | null, guess: T | null): T | null {
  if (wanted === NONE) return null;
  return options.find((option) => option.toString() === wanted) ?? guess;
}
