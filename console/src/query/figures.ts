/** An answer that is a single row, as figures to be read at a glance. */
import type { Json } from "../api/decode";
import type { Row } from "../live/session";

export interface Figure {
  label: string;
  value: string | number | boolean | null;
}

/** More fields than this are read better as a table. */
export const FIGURES_MAX = 6;

/** The fields of the only row, if one of them is a number and all are simple; null for any other answer. */
export function figuresOf(columns: readonly string[], rows: readonly Row[]): Figure[] | null {
  const [row] = rows;
  if (row === undefined || rows.length > 1 || columns.length > FIGURES_MAX) return null;
  const figures: Figure[] = [];
  for (const label of columns) {
    const value = row.record[label] ?? null;
    if (!isSimple(value)) return null;
    figures.push({ label, value });
  }
  return figures.some(({ value }) => typeof value === "number") ? figures : null;
}

function isSimple(value: Json): value is Figure["value"] {
  return value === null || typeof value !== "object";
}

/** Beyond these digits a mean shows how it is computed, not what was measured. */
const DIGITS_MAX = 7;

export function figureText(value: Figure["value"]): string {
  if (value === null) return "–";
  if (typeof value !== "number") return String(value);
  const shown = Number.isInteger(value) ? value : Number(value.toPrecision(DIGITS_MAX));
  const isTiny = shown !== 0 && Math.abs(shown) < 1e-6;
  return isTiny ? String(shown) : shown.toLocaleString("en", { maximumFractionDigits: DIGITS_MAX });
}
