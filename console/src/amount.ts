/** Sizes and time spans as people type them. */

const SIZES: Readonly<Record<string, number>> = { "": 1, b: 1, kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 };
const SPANS_MS: Readonly<Record<string, number>> = {
  "": 1,
  ms: 1,
  s: 1_000,
  m: 60_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
};

/** `64 MiB`, `1.5GiB` or `1000` in bytes; null if it is no size. */
export function sizeOf(text: string): number | null {
  return amount(text, SIZES);
}

/** `30 s`, `5m`, `7d` or `1500` in milliseconds; null if it is no time span. */
export function spanOf(text: string): number | null {
  return amount(text, SPANS_MS);
}

function amount(text: string, units: Readonly<Record<string, number>>): number | null {
  const [, digits = "", unit = ""] = /^\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$/i.exec(text) ?? [];
  const factor = units[unit.toLowerCase()];
  return digits === "" || factor === undefined ? null : Math.round(Number(digits) * factor);
}
