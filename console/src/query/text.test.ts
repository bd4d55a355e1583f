import { describe, expect, it } from "vitest";
import type { Finding } from "../api/http";
import { excerpt, rangeOf, streamOf, tokens, withSuggestion } from "./text";

function finding(line: number, column: number, length: number): Finding {
  return { kind: "error", message: "", line, column, length, suggestion: null };
}

describe("the words of a query", () => {
  it("are coloured by their kind", () => {
    const kinds = tokens("select \"a b\" from stream(1e3) where $key = 'it''s' and time > 1.5L", [])
      .filter(({ text }) => text.trim() !== "")
      .map(({ kind, text }) => `${kind} ${text.trim()}`);
    expect(kinds).toEqual([
      "keyword select",
      'string "a b"',
      "keyword from",
      "keyword stream",
      "plain (",
      "number 1e3",
      "plain )",
      "keyword where",
      "pseudo $key",
      "plain =",
      "string 'it''s'",
      "keyword and",
      "plain time",
      "plain >",
      "number 1.5L",
    ]);
  });

  it("are functions where they are called, and keywords or names elsewhere", () => {
    const kinds = tokens("SELECT COUNT(*), max(a), min FROM STREAM(MAX, TIME)", [])
      .filter(({ kind }) => kind === "function" || kind === "keyword")
      .map(({ kind, text }) => `${kind} ${text}`);
    expect(kinds).toEqual([
      "keyword SELECT",
      "function COUNT",
      "function max",
      "keyword FROM",
      "keyword STREAM",
      "keyword MAX",
      "keyword TIME",
    ]);
  });

  it.each([
    ['SELECT * FROM "my ""topic""" LIMIT 1', 'my "topic"'],
    ["SELECT * FROM STREAM()", null],
    ["SELECT 'FROM \"x\"'", null],
    ['SELECT * FROM "open', null],
  ])("%s reads the topic %s", (text, topic) => {
    expect(streamOf(text)).toBe(topic);
  });

  it.each(["", "SELECT", "'open", "a\n\nb", "((((", "SELECT * FROM STREAM() WHERE é = 'ü' -- ?"])(
    "are all of the text %j, with or without findings",
    (text) => {
      for (const findings of [[], [finding(1, 3, 4)], [finding(1, 1, 1), finding(9, 99, 99)]]) {
        expect(
          tokens(text, findings)
            .map((token) => token.text)
            .join(""),
        ).toBe(text);
      }
    },
  );

  it("are cut where a finding begins and ends", () => {
    const marked = tokens("SELECT abc", [finding(1, 5, 4)]).filter((token) => token.finding === 0);
    expect(marked.map(({ text }) => text).join("")).toBe("CT a");
  });
});

describe("a finding", () => {
  it("points into its line", () => {
    expect(rangeOf("ab\ncde", finding(2, 2, 2))).toEqual({ start: 4, end: 6 });
    expect(excerpt("ab\ncde", finding(2, 2, 2))).toEqual({ line: "cde", marks: " ^^" });
  });

  it("counts characters, not halves of them", () => {
    expect(rangeOf("'🌡' = x", finding(1, 7, 1))).toEqual({ start: 7, end: 8 });
    expect(excerpt("'🌡' = x", finding(1, 7, 1)).marks).toBe("      ^");
  });

  it("puts its suggestion where it points", () => {
    expect(withSuggestion("SELECT a FORM x", { ...finding(1, 10, 4), suggestion: "FROM" })).toBe("SELECT a FROM x");
  });

  it("beyond the end points at the last character", () => {
    expect(rangeOf("ab", finding(1, 3, 0))).toEqual({ start: 1, end: 2 });
    expect(excerpt("ab", finding(1, 3, 0))).toEqual({ line: "ab", marks: "  ^" });
    expect(rangeOf("", finding(1, 1, 1))).toEqual({ start: 0, end: 0 });
  });
});
