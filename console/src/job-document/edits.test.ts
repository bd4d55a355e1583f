import { describe, expect, it } from "vitest";
import type { FieldEdit } from "../parts/field-edit";
import { indented, newLine, outdented } from "./edits";

/** The text after an edit of what stands between the bars, or at the one bar, with bars around what is selected. */
function edited(edit: (text: string, from: number, to: number) => FieldEdit, marked: string): string {
  const from = marked.indexOf("|");
  const to = Math.max(from, marked.lastIndexOf("|") - 1);
  const text = marked.replaceAll("|", "");
  const change = edit(text, from, to);
  const after = text.slice(0, change.from) + change.text + text.slice(change.to);
  const behind = change.from + change.text.length;
  const select = change.select ?? { from: behind, to: behind };
  const selected = after.slice(select.from, select.to);
  return `${after.slice(0, select.from)}|${selected === "" ? "" : `${selected}|`}${after.slice(select.to)}`;
}

describe("the key", () => {
  it.each([
    ["a|", "a |"],
    ["ab|", "ab  |"],
    ["|a: b", "  |a: b"],
    ["a\n|b\n\nc|\nd", "a\n|  b\n\n  c|\nd"],
    ["|a\n|b", "|  a|\nb"],
  ])("Tab makes %j %j", (before, after) => {
    expect(edited(indented, before)).toBe(after);
  });

  it.each([
    ["    a|", "  a|"],
    [" |a", "|a"],
    ["a|", "a|"],
    ["  |a|", "|a|"],
    ["|    a\n b|\n  c", "|  a\nb|\n  c"],
  ])("Shift+Tab makes %j %j", (before, after) => {
    expect(edited(outdented, before)).toBe(after);
  });

  it.each([
    ["  a: b|", "  a: b\n  |"],
    ["  a:|", "  a:\n    |"],
    ["  a: # why|", "  a: # why\n    |"],
    ["  - a: b|", "  - a: b\n    |"],
    ["  - a:|", "  - a:\n      |"],
    ["  |a: b", "  \n  |a: b"],
    ["|", "\n|"],
  ])("Enter makes %j %j", (before, after) => {
    expect(edited(newLine, before)).toBe(after);
  });
});
