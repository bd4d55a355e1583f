/** Numbers, sizes and times as people read them. */

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** All digits: `1,234,567`. */
export function whole(value: number): string {
  return GROUPED.format(value);
}

/** Three significant digits at most: `0.42`, `3.1`, `812`, `26.1 k`, `1.25 M`. */
export function short(value: number): string {
  for (const [from, unit, letter] of UNITS) {
    if (Math.abs(value) >= from) return `${threeDigits(value / unit)} ${letter}`;
  }
  return Math.abs(value) >= 1000 ? whole(value) : threeDigits(value);
}

/** As many digits as tell values `step` apart: `52.52001` by 0.00001, `123,451` by 1, `122.5 k` by 2,500. */
export function stepped(value: number, step: number): string {
  const [, unit, letter] = UNITS.find(([from]) => Math.abs(value) >= from) ?? [0, 1, ""];
  const inUnits = decimals(step / unit);
  // "123.451 k" is harder to read than all digits.
  if (letter !== "" && inUnits <= 1) return `${fixed(value / unit, inUnits)} ${letter}`;
  return fixed(value, decimals(step));
}

/** From which size on a unit is used, the unit, and its letter. */
const UNITS: readonly [number, number, string][] = [
  [1e9, 1e9, "G"],
  [1e6, 1e6, "M"],
  [1e4, 1e3, "k"],
];

const DECIMALS_MAX = 12;

/** How many decimals multiples of a step have: 1 for 0.5, 2 for 0.25, none for 20. */
function decimals(step: number): number {
  for (let count = 0; count < DECIMALS_MAX; count += 1) {
    const scaled = step * 10 ** count;
    if (Math.abs(scaled - Math.round(scaled)) < 1e-6 * scaled) return count;
  }
  return DECIMALS_MAX;
}

function fixed(value: number, maximumFractionDigits: number): string {
  return value.toLocaleString("en", { maximumFractionDigits });
}

function threeDigits(value: number): string {
  const size = Math.abs(value);
  if (size >= 100) return value.toFixed(0);
  const digits = size >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}

/** `812 B`, `4.2 KiB`, `96 MiB`. */
export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  let rest = value;
  while (Math.abs(rest) >= 1024 && step < units.length - 1) {
    rest /= 1024;
    step += 1;
  }
  return `${threeDigits(rest)} ${units[step] ?? ""}`;
}

/** A duration of milliseconds with its unit: `240 µs`, `3.4 ms`, `1.2 s`. */
export function latency(value_ms: number): string {
  if (value_ms === 0) return "0 ms";
  if (value_ms < 1) return `${threeDigits(value_ms * 1000)} µs`;
  if (value_ms < 1000) return `${threeDigits(value_ms)} ms`;
  return `${threeDigits(value_ms / 1000)} s`;
}

/** A long duration: `42 s`, `3 min 5 s`, `2 h 10 min`, `4 d 3 h`. */
export function duration(value_s: number): string {
  const s = Math.max(0, Math.floor(value_s));
  if (s < 60) return `${s} s`;
  if (s < 3600) return join(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86_400) return join(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return join(Math.floor(s / 86_400), "d", Math.floor((s % 86_400) / 3600), "h");
}

function join(big: number, bigUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${big} ${bigUnit}` : `${big} ${bigUnit} ${small} ${smallUnit}`;
}

const AGO_UNITS: readonly [number, string][] = [
  [86_400 * 365.25, "y"],
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
];

/** How long ago: `now`, `12 s ago`, `3 min ago`, `5 h ago`, `8 d ago`, `2 y ago`; in the future `in 5 min`. */
export function ago(then_ms: number, now_ms: number): string {
  const s = Math.round((now_ms - then_ms) / 1000);
  if (Math.abs(s) < 2) return "now";
  const size = Math.abs(s);
  const [unit_s, unit] = AGO_UNITS.find(([from_s]) => size >= from_s) ?? [1, "s"];
  const text = `${Math.floor(size / unit_s)} ${unit}`;
  return s > 0 ? `${text} ago` : `in ${text}`;
}

/** The time of day on this machine: `14:03:22`. */
export function clock(then_ms: number): string {
  const date = new Date(then_ms);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** Day and time on this machine: `2013-01-05 14:03:22`. */
export function moment(then_ms: number): string {
  const date = new Date(then_ms);
  const two = (part: number): string => String(part).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(then_ms)}`;
}

/** A long text without its middle, at most `most_chars` long: what begins alike often differs at the end. */
export function cutMiddle(text: string, most_chars: number): string {
  const chars = Array.from(text);
  if (chars.length <= most_chars) return text;
  const kept = most_chars - 1;
  const end = Math.floor(kept / 2);
  return `${chars.slice(0, kept - end).join("")}…${chars.slice(chars.length - end).join("")}`;
}

/** `1 record`, `2 records`. */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${whole(count)} ${count === 1 ? noun : plural}`;
}
