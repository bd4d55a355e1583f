/** The history of one attribute, as it is drawn or listed. */
import type { Json } from "../api/decode";
import { fetchPeriods, fetchPoints, type Period, type Point, type Whose } from "../api/history";

/** As many points as are read, and drawn, of the latest. */
export const POINTS_MAX = 200;

export const SPANS = {
  latest: { label: `latest ${POINTS_MAX} values`, span_ms: null, period: null },
  hour: { label: "last hour", span_ms: 3_600_000, period: "PT15S" },
  day: { label: "last day", span_ms: 86_400_000, period: "PT5M" },
  week: { label: "last 7 days", span_ms: 7 * 86_400_000, period: "PT30M" },
  month: { label: "last 30 days", span_ms: 30 * 86_400_000, period: "PT3H" },
  year: { label: "last 365 days", span_ms: 365 * 86_400_000, period: "P1D" },
} as const;

export type SpanName = keyof typeof SPANS;

export function spanOf(text: string | null): SpanName {
  return (Object.keys(SPANS) as SpanName[]).find((name) => name === text) ?? "latest";
}

export type AttributeHistory =
  | { kind: "points"; points: Point[] }
  /** Of a long span: too many points to draw each. */
  | { kind: "periods"; periods: Period[] };

export async function fetchHistory(
  whose: Whose,
  name: SpanName,
  isNumber: boolean,
  now_ms: number,
): Promise<AttributeHistory> {
  const { span_ms, period } = SPANS[name];
  if (span_ms === null) return { kind: "points", points: await fetchPoints(whose, POINTS_MAX, null) };
  const after_ms = now_ms - span_ms;
  if (isNumber) return { kind: "periods", periods: await fetchPeriods(whose, period, after_ms) };
  return { kind: "points", points: await fetchPoints(whose, POINTS_MAX, after_ms) };
}

export interface HistoryLines {
  /** Seconds since 1970, ascending. */
  times_s: number[];
  lines: { label: string; values: (number | null)[] }[];
}

/** The lines to draw; null if the values are no numbers. */
export function linesOfHistory(label: string, history: AttributeHistory): HistoryLines | null {
  if (history.kind === "periods") {
    const { periods } = history;
    return {
      times_s: periods.map(({ from_ms }) => from_ms / 1000),
      lines: [
        { label: "mean", values: periods.map(({ mean }) => mean) },
        { label: "least", values: periods.map(({ min }) => min) },
        { label: "greatest", values: periods.map(({ max }) => max) },
      ],
    };
  }
  const { points } = history;
  const numbers = points.filter(({ value }) => typeof value === "number");
  if (numbers.length === 0 || numbers.length * 2 < points.length) return null;
  // Of several points of one moment the chart can show one.
  const byTime = new Map(points.map(({ at_ms, value }) => [at_ms, typeof value === "number" ? value : null]));
  return { times_s: [...byTime.keys()].map((at_ms) => at_ms / 1000), lines: [{ label, values: [...byTime.values()] }] };
}

/** A value, since when it was seen, and how often in a row. */
export interface ValueChange {
  value: Json;
  from_ms: number;
  count: number;
}

/** The different values one after the other, newest first. */
export function changesOf(points: readonly Point[]): ValueChange[] {
  const changes: ValueChange[] = [];
  for (const { at_ms, value } of points) {
    const last = changes.at(-1);
    if (last !== undefined && JSON.stringify(last.value) === JSON.stringify(value)) last.count += 1;
    else changes.push({ value, from_ms: at_ms, count: 1 });
  }
  return changes.reverse();
}
