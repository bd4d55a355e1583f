/** Of which records a query is asked: as the user writes it, and as a request says it. */

/** As it is written; empty for what the server does by itself. */
export interface Range {
  from: string;
  until: string;
}

export const LIVE: Range = { from: "", until: "" };

export type StreamPlace = "earliest" | "now" | "never" | { time_ms: number };

export type RangeRequest = Partial<Record<keyof Range, StreamPlace>>;

const UNITS_MS: Readonly<Record<string, number>> = { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 };

/** What a request says of `range`, or a sentence about what cannot be read. */
export function rangeRequest(range: Range, now_ms: number): RangeRequest | string {
  const request: RangeRequest = {};
  for (const member of ["from", "until"] as const) {
    const written = range[member].trim();
    if (written === "") continue;
    const place = streamPlace(written, now_ms);
    const words = member === "from" ? ["earliest", "now"] : ["now", "never"];
    if (place === null || (typeof place === "string" && !words.includes(place))) {
      return `"${written}" is no place to ${member === "from" ? "begin" : "end"}: use ${words.join(", ")}, how long ago such as 2h, or a time such as 2026-01-31T12:00`;
    }
    request[member] = place;
  }
  return request;
}

function streamPlace(written: string, now_ms: number): StreamPlace | null {
  if (written === "earliest" || written === "now" || written === "never") return written;
  const ago = /^(\d+(?:\.\d+)?) ?([smhd])$/.exec(written);
  if (ago !== null) return { time_ms: Math.round(now_ms - Number(ago[1]) * (UNITS_MS[ago[2] ?? ""] ?? 0)) };
  const time_ms = /^\d{4}-\d\d-\d\d/.test(written) ? Date.parse(written) : NaN;
  return Number.isNaN(time_ms) ? null : { time_ms };
}
