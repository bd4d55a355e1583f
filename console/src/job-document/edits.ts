/** Keys that change the indentation: Tab, Shift+Tab and Enter. Two spaces are one step. */
import type { FieldEdit } from "../parts/field-edit";

const STEP = 2;

/** A step to the right: of the selected lines, or of what stands behind the caret. */
export function indented(text: string, from: number, to: number): FieldEdit {
  const start = lineStart(text, from);
  if (!text.slice(from, to).includes("\n")) {
    return { from, to, text: " ".repeat(STEP - ((from - start) % STEP)) };
  }
  return ofLines(text, from, to, (line) => (line === "" ? line : " ".repeat(STEP) + line));
}

/** A step to the left: of the line of the caret, or of the selected lines. */
export function outdented(text: string, from: number, to: number): FieldEdit {
  const removed = (line: string): string => line.replace(/^ {1,2}/, "");
  if (text.slice(from, to).includes("\n")) return ofLines(text, from, to, removed);
  const start = lineStart(text, from);
  const spaces = text.slice(start, start + STEP).length - removed(text.slice(start, start + STEP)).length;
  const moved = (place: number): number => Math.max(start, place - spaces);
  return { from: start, to: start + spaces, text: "", select: { from: moved(from), to: moved(to) } };
}

/** A new line, indented as the one before; a step more behind a key without a value, and in an item of a list. */
export function newLine(text: string, from: number, to: number): FieldEdit {
  const before = text.slice(lineStart(text, from), from);
  const spaces = /^ */.exec(before)?.[0].length ?? 0;
  const dash = /^ *- +(?=\S)/.exec(before)?.[0].length ?? spaces;
  const opens = /:[ \t]*(?:#.*)?$/.test(before) ? STEP : 0;
  return { from, to, text: `\n${" ".repeat(dash + opens)}` };
}

function ofLines(text: string, from: number, to: number, change: (line: string) => string): FieldEdit {
  const start = lineStart(text, from);
  // A line of which nothing is selected stays.
  const last = text[to - 1] === "\n" ? to - 1 : to;
  const newline = text.indexOf("\n", last);
  const end = newline < 0 ? text.length : newline;
  const changed = text.slice(start, end).split("\n").map(change).join("\n");
  return { from: start, to: end, text: changed, select: { from: start, to: start + changed.length } };
}

function lineStart(text: string, at: number): number {
  return at === 0 ? 0 : text.lastIndexOf("\n", at - 1) + 1;
}
