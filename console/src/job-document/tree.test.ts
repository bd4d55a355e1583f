import { describe, expect, it } from "vitest";
import type { Json } from "../api/decode";
import { jsonOf, readTree } from "./tree";

const read = (...lines: string[]): Json => jsonOf(readTree(lines.join("\n")));

describe("the tree of a document", () => {
  it("is read in one pass, whatever its lines", () => {
    const members = Array.from({ length: 50_000 }, (_, index) => `"k${index}":{"a":[${index}]}`);
    const tree = readTree(`{${members.join(",")}}`);
    expect(tree?.kind === "mapping" ? tree.entries.length : 0).toBe(50_000);
  });

  it.each<[string, string[], unknown]>([
    [
      "keys and texts",
      ["a: b", "c: 1 # no text", "\"d e\": 'it''s'", "f: a:b"],
      { a: "b", c: "1", "d e": "it's", f: "a:b" },
    ],
    ["objects by indentation", ["a:", "  b:", "    c: d", "  e: f", "g: h"], { a: { b: { c: "d" }, e: "f" }, g: "h" }],
    [
      "lists by indentation",
      ["a:", "  - b", "  - c: d", "    e: f", "  -", "g:", "- h"],
      { a: ["b", { c: "d", e: "f" }, null], g: ["h"] },
    ],
    [
      "brackets",
      ["a: { b: [c, 'd, e'], f: { g: {} } } # no text", "h: []"],
      { a: { b: ["c", "d, e"], f: { g: {} } }, h: [] },
    ],
    [
      "brackets over lines",
      ["a: {", "  b: c, # no text", "  d: [e,", "    f] }", "g: h"],
      { a: { b: "c", d: ["e", "f"] }, g: "h" },
    ],
    ["texts over lines", ["a: b", "  c", "d: |", "  e: f", "", "  # no key", "g: h"], { a: "b c", d: "e: f", g: "h" }],
    ["comments and empty lines", ["# first: no", "a:", "", "  # second: no", "  b: c#d"], { a: { b: "c#d" } }],
    ["JSON", ['{"a":{"b":[1,"c\\n"],"d":null}}'], { a: { b: ["1", "c\n"], d: "null" } }],
    ["carriage returns", ["a: b\r", "c:\r", "  d: e\r"], { a: "b", c: { d: "e" } }],
    ["names with a dollar", ["a: [{ $key: d1, temp: 77 }]"], { a: [{ $key: "d1", temp: "77" }] }],
  ])("has %s", (_, lines, expected) => {
    expect(read(...lines)).toEqual(expected);
  });

  it.each<[string, string[], unknown]>([
    ["a key without a colon", ["a: b", "ty"], { a: "b", ty: null }],
    ["a list that is not closed", ["a:", "  b: [c, d", "  e: f"], { a: { b: ["c", "d"], e: "f" } }],
    ["an object that is not closed", ["a:", "  b: { c: d, e", "f: g"], { a: { b: { c: "d", e: null } }, f: "g" }],
    ["a quotation mark that is not closed", ['a: { b: "c', "d: e"], { a: { b: "c\nd: e" } }],
    ["the wrong bracket", ["a: { b: [c } ]", "d: e"], { a: { b: ["c"] }, d: "e" }],
    ["a line that is indented too far", ["a:", "  b: {}", "     c", "  d: e"], { a: { b: {}, d: "e" } }],
    ["nothing", [""], null],
    ["a key without a colon before others", ["a:", "  ty", "  b: c"], { a: { ty: null, b: "c" } }],
    ["a colon alone", [": b", "a: c"], { ": b": null, a: "c" }],
    ["brackets without end", ["[".repeat(5000)], undefined],
    ["dashes without end", [`a: ${"- ".repeat(5000)}`], undefined],
    ["dashes as the value", ["- ".repeat(5000)], undefined],
  ])("goes on after %s", (_, lines, expected) => {
    const found = read(...lines);
    if (expected !== undefined) expect(found).toEqual(expected);
  });
});
