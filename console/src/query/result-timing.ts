/** When a query gives its result, as far as its text and its range tell. */
import { duration } from "../format";
import type { RangeRequest } from "./range";

export type ResultTiming =
  /** Each match is a row at once. */
  | { kind: "rows" }
  | { kind: "every"; every_ms: number }
  | { kind: "records"; records: number }
  /** When time has come to the end of a window, by the records or the calendar, or a session is over. */
  | { kind: "window" }
  | { kind: "after"; after_ms: number }
  /** As soon as all records that are there have been read. */
  | { kind: "read" }
  /** When somebody stops the query. */
  | { kind: "stop" };

const TEXTS_AND_COMMENTS = /'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\//g;
/** Windows whose results come at no equal distances. */
const PLACED =
  /\bWINDOWING\s+(?:SESSION\b|TUMBLING\s*\(\s*\d+\s*,\s*(?:DAY|WEEK|MONTH|QUARTER|YEAR)\b|[^)]*\)\s*ON\b)/i;
const WINDOW = /\bWINDOWING\s+(?:TUMBLING|EVERY)\s*\(\s*(\d+)\s*,\s*(TIME|RECORD)\b/i;
const DURATION = /\bSTREAM\s*\(\s*(\d+)\s*,\s*TIME\s*\)/i;
/** Such a query has rows only when all of its records are there. */
const COLLECTS =
  /\b(?:COUNT|SUM|AVG|MIN|MAX|STDDEV|FIRST|LAST|QUANTILE|FREQ|CUMFREQ|TOP)\s*\(|\bGROUP\s+BY\b|\bORDER\s+BY\b|\bDISTINCT\b/i;

export function resultTiming(text: string, range: RangeRequest): ResultTiming {
  const words = text.replace(TEXTS_AND_COMMENTS, " ");
  if (PLACED.test(words)) return { kind: "window" };
  const [, every, unit] = WINDOW.exec(words) ?? [];
  if (every !== undefined) {
    return unit?.toUpperCase() === "TIME"
      ? { kind: "every", every_ms: Number(every) }
      : { kind: "records", records: Number(every) };
  }
  if (!COLLECTS.test(words)) return { kind: "rows" };
  if (range.until !== undefined && range.until !== "never") return { kind: "read" };
  const [, after] = DURATION.exec(words) ?? [];
  if (after !== undefined) return { kind: "after", after_ms: Number(after) };
  const beginsBefore = range.from !== undefined && range.from !== "now";
  return { kind: beginsBefore && range.until !== "never" ? "read" : "stop" };
}

/** What to tell somebody who waits for the first rows of a query that has been live for so long. */
export function waitingText(timing: ResultTiming, elapsed_ms: number): string {
  switch (timing.kind) {
    case "rows":
      return "Waiting for the first record that matches…";
    case "every":
      return countdown(timing.every_ms - (Math.max(0, elapsed_ms) % timing.every_ms));
    case "window":
      return "A result comes when a window has ended";
    case "after":
      return countdown(timing.after_ms - elapsed_ms);
    case "records":
      return timing.records === 1
        ? "The result comes with the first record that matches"
        : `The result comes after ${timing.records} records that match`;
    case "read":
      return "The result comes when all records are read…";
    case "stop":
      return "The result comes when the query is stopped";
  }
}

function countdown(left_ms: number): string {
  return left_ms > 0 ? `The result comes in ${duration(Math.ceil(left_ms / 1000))}` : "The result comes now…";
}
