/** What the server tells about a result, in words. */
import type { Sketch, Summary, WindowMeta } from "../api/query-meta";
import { bytes, clock, counted, duration, latency, moment, short, whole } from "../format";

/** The day of a moment: `2013-01-05`. */
const DAY_CHARS = 10;

const CAUSES: Readonly<Record<string, string>> = {
  duration: "its time was over",
  until: "it had seen everything up to its end",
  size: "it had all the rows it asked for",
  killed: "it was stopped",
  limit: "it broke a limit",
  error: "of an error",
  disconnected: "the connection was lost",
  shutdown: "the server shut down",
};

export function causeText(cause: string): string {
  return CAUSES[cause] ?? cause;
}

/** Beyond two standard deviations lie about 5 of 100 results. */
const TWO_DEVIATIONS = 1;

/** What a sketch is of, and how sure it is. */
export function sketchText(sketch: Sketch): { of: string; text: string } {
  return { of: subject(sketch), text: `${accuracy(sketch)}; ${bytes(sketch.size_bytes)}` };
}

function subject({ of }: Sketch): string {
  switch (of) {
    case "groups":
      return "Groups";
    case "top":
      return "Most frequent";
    case "distribution":
      return "Distribution";
    default:
      return of;
  }
}

function accuracy(sketch: Sketch): string {
  const { uniques_estimate, was_estimated, rank_error, count_error, items_seen, relative_error, active_items } = sketch;
  const seen = items_seen === null ? "" : `of ${counted(items_seen, "value")}${range(sketch)}, `;
  if (rank_error !== null) {
    return was_estimated ? `${seen}ranks may be off by ${percent(rank_error)} of them (99 % certain)` : `${seen}exact`;
  }
  if (count_error !== null) {
    if (!was_estimated) return `${seen}counts are exact`;
    return `${seen}counts may be too high by up to ${whole(count_error)}`;
  }
  if (!was_estimated) return uniques_estimate === null ? "exact" : `${whole(uniques_estimate)}, exact`;
  const parts = [`about ${short(uniques_estimate ?? 0)}${between(sketch)}`];
  if (relative_error !== null) parts.push(`each figure may be off by ${percent(relative_error)}`);
  if (active_items !== null && uniques_estimate !== null) parts.push(`${whole(active_items)} of them are shown`);
  return parts.join("; ");
}

function range({ min, max }: Sketch): string {
  return min === null || max === null ? "" : ` from ${short(min)} to ${short(max)}`;
}

function between({ standard_deviations }: Sketch): string {
  const bounds = standard_deviations[TWO_DEVIATIONS];
  if (bounds === undefined) return "";
  return `, between ${whole(Math.floor(bounds.lower))} and ${whole(Math.ceil(bounds.upper))} (95 % certain)`;
}

/** `0.4 %`, `12 %`. */
export function percent(share: number): string {
  const value = 100 * share;
  return `${value === 0 || value >= 10 ? value.toFixed(0) : value.toPrecision(2)} %`;
}

/** `Window 3, every 5 s, of 30 records`, or with the bounds of the window. */
export function windowText({ name, number, size, records, start_ms, end_ms }: WindowMeta): string {
  if (start_ms !== null && end_ms !== null) {
    const begin = moment(start_ms);
    const end = moment(end_ms);
    const isOneDay = begin.slice(0, DAY_CHARS) === end.slice(0, DAY_CHARS);
    return `Window ${whole(number)}, ${begin} to ${isOneDay ? clock(end_ms) : end}, of ${counted(records, "record")}`;
  }
  const each = name.endsWith("time") ? duration(size / 1000) : counted(size, "record");
  const kind = name.startsWith("additive") ? ", all since the start" : "";
  return `Window ${whole(number)}, every ${size < 1000 && name.endsWith("time") ? latency(size) : each}${kind}, of ${counted(records, "record")}`;
}

/** The share of the records seen that matched. */
export function matchedText({ matched, records_seen }: Summary): string {
  return records_seen === 0 ? whole(matched) : `${whole(matched)} (${percent(matched / records_seen)})`;
}

const ESTIMATE = /^(.+?) is an estimate: (.+)$/;

/** Remarks without repetitions: what several figures share is said once, with all of their names. */
export function oncePerReason(remarks: readonly string[]): string[] {
  const estimates = new Map<string, string[]>();
  const once = new Set<string>();
  for (const remark of remarks) {
    const [, name, reason] = ESTIMATE.exec(remark) ?? [];
    if (name === undefined || reason === undefined) once.add(remark);
    else estimates.set(reason, [...(estimates.get(reason) ?? []), name]);
  }
  const shared = [...estimates].map(([reason, names]) => {
    const [first = "", ...others] = new Set(names);
    const last = others.pop();
    return last === undefined
      ? `${first} is an estimate: ${reason}`
      : `${[first, ...others].join(", ")} and ${last} are estimates: ${reason}`;
  });
  return [...once, ...shared];
}

/** What went less well than asked for: a line each. */
export function troubles(summary: Summary): string[] {
  const { dropped, evaluation_errors, not_json, skipped, late, clamped, errors } = summary;
  const lines: string[] = [];
  if (dropped > 0) lines.push(`${counted(dropped, "row")} left out by the server: this page was too slow`);
  if (evaluation_errors > 0)
    lines.push(
      `${counted(evaluation_errors, "record")} had a value that could not be computed: NULL in its row, no match in a condition`,
    );
  if (not_json > 0)
    lines.push(`${counted(not_json, "record")} of the stream ${not_json === 1 ? "was" : "were"} not JSON`);
  if (skipped > 0) lines.push(`${counted(skipped, "record")} gone before they could be read`);
  if (late > 0)
    lines.push(`${counted(late, "record")} came after the windows of their times; a longer DELAY waits for them`);
  for (const { setting, given } of clamped) lines.push(`${setting} allows only ${whole(given)}`);
  for (const { error, resolution } of errors) lines.push(`${error}; ${resolution}`);
  return lines;
}
