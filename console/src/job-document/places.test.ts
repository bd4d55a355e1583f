import { describe, expect, it } from "vitest";
import type { JobFinding } from "../api/job-documents";
import { indexOf, withNearest } from "./places";

const FINDING: JobFinding = {
  path: "transforms.a.type",
  bundle: null,
  line: 2,
  column: 9,
  value: '"mapp"',
  message: "'mapp' is no type",
  nearest: "map",
};

describe("a place in a document", () => {
  it.each([
    [1, 1, 0],
    [2, 2, 4],
    [2, 9, 5],
    [9, 1, 6],
    [3, 3, 8],
  ])("line %d, column %d is %d", (line, column, index) => {
    expect(indexOf("ab\nde\n😀", line, column)).toBe(index);
  });
});

describe("the nearest name", () => {
  it.each<[string, Partial<JobFinding>, string | null]>([
    ["a:\n  type: mapp\n", {}, "a:\n  type: map\n"],
    ['a:\n  type: "mapp"\n', {}, 'a:\n  type: "map"\n'],
    ["a:\n  type: filter\n", {}, null],
    ["a:\n  type: mapp\n", { nearest: null }, null],
    ["a:\n  type: mapp\n", { value: null }, null],
    ["a:\n  type: mapp\n", { value: '"ma…' }, null],
    ["a:\n  type: mapp\n", { bundle: "clean" }, null],
  ])("in %j (%j) makes %j", (text, change, expected) => {
    const edit = withNearest(text, { ...FINDING, ...change });
    expect(edit === null ? null : text.slice(0, edit.from) + edit.text + text.slice(edit.to)).toBe(expected);
  });
});
