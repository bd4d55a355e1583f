/** The text of a query as the editor sees it: coloured words, and the places that the server's findings point at. */
import type { Finding } from "../api/http";
import { ALIASES, FUNCTIONS } from "./functions";
import { PLACED, RESERVED } from "./words";

export type TokenKind = "keyword" | "function" | "string" | "number" | "pseudo" | "plain";

export interface Token {
  kind: TokenKind;
  text: string;
  /** Index into {@link placed}'s findings, if one points here. */
  finding: number | null;
}

const KEYWORDS = new Set(RESERVED);
const PLACED_KEYWORDS = new Set(PLACED);

const TOKEN =
  /(?<string>'(?:[^']|'')*'?|"(?:[^"]|"")*"?)|(?<pseudo>\$[A-Za-z_]\w*)|(?<number>\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[LlFf]?\b)|(?<word>[A-Za-z_]\w*)/g;

interface Range {
  start: number;
  end: number;
}

/** The text cut into tokens, and cut again where a finding begins or ends. */
export function tokens(text: string, findings: readonly Finding[]): Token[] {
  const ranges = findings.map((finding) => rangeOf(text, finding));
  const result: Token[] = [];
  const add = (start: number, end: number, kind: TokenKind): void => {
    for (const piece of cut({ start, end }, ranges)) {
      const finding = ranges.findIndex((range) => range.start <= piece.start && piece.end <= range.end);
      result.push({ kind, text: text.slice(piece.start, piece.end), finding: finding < 0 ? null : finding });
    }
  };
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > at) add(at, match.index, "plain");
    at = match.index + match[0].length;
    add(match.index, at, kindOf(match, text.slice(at)));
  }
  if (at < text.length) add(at, text.length, "plain");
  return result;
}

function kindOf(match: RegExpExecArray, after: string): TokenKind {
  const { string, pseudo, number } = match.groups ?? {};
  if (string !== undefined) return "string";
  if (pseudo !== undefined) return "pseudo";
  if (number !== undefined) return "number";
  const word = match[0];
  const capitals = word.toUpperCase();
  const isCalled = /^\s*\(/.test(after);
  if (isCalled && (FUNCTIONS.has(capitals) || ALIASES.includes(capitals))) return "function";
  // Such a word is as often the name of a field: `time > 5`.
  if (PLACED_KEYWORDS.has(word) || (isCalled && PLACED_KEYWORDS.has(capitals))) return "keyword";
  return KEYWORDS.has(capitals) ? "keyword" : "plain";
}

function cut(whole: Range, ranges: readonly Range[]): Range[] {
  const edges = ranges
    .flatMap(({ start, end }) => [start, end])
    .filter((edge) => whole.start < edge && edge < whole.end)
    .sort((a, b) => a - b);
  const bounds = [whole.start, ...new Set(edges), whole.end];
  return bounds.slice(1).map((end, index) => ({ start: bounds[index] ?? whole.start, end }));
}

/** Where a finding points, as indices into the text; at least one character wide where there is one. */
export function rangeOf(text: string, finding: Finding): Range {
  const lines = text.split("\n");
  const line = Math.min(Math.max(finding.line, 1), lines.length);
  const lineStart = lines.slice(0, line - 1).reduce((sum, before) => sum + before.length + 1, 0);
  const start = skip(text, lineStart, finding.column - 1);
  const end = skip(text, start, Math.max(finding.length, 1));
  // What is missing at the very end is shown under the last character.
  return start < end ? { start, end } : { start: Math.max(0, end - 1), end };
}

/** The index `characters` after `from`. The server counts whole characters, a string here counts halves of some. */
function skip(text: string, from: number, characters: number): number {
  let at = from;
  for (let left = characters; left > 0 && at < text.length; left -= 1) {
    at += (text.codePointAt(at) ?? 0) > 0xffff ? 2 : 1;
  }
  return at;
}

/** The text with the server's suggestion in the place that the finding points at. */
export function withSuggestion(text: string, finding: Finding): string {
  const { start, end } = rangeOf(text, finding);
  return text.slice(0, start) + (finding.suggestion ?? text.slice(start, end)) + text.slice(end);
}

/** The line a finding points into, and the marks to print under it. */
export function excerpt(text: string, finding: Finding): { line: string; marks: string } {
  const line = text.split("\n")[finding.line - 1] ?? "";
  const characters = Array.from(line).length;
  const before = Math.min(Math.max(finding.column - 1, 0), characters);
  const width = Math.max(1, Math.min(finding.length, characters - before));
  return { line, marks: " ".repeat(before) + "^".repeat(width) };
}

/** The topic that a query names after FROM; null for `STREAM(…)`, or if it names none yet. */
export function streamOf(text: string): string | null {
  const words = tokens(text, []).filter((token) => token.text.trim() !== "");
  const from = words.findIndex(({ kind, text: word }) => kind === "keyword" && word.toUpperCase() === "FROM");
  const named = words[from + 1];
  if (from < 0 || named?.kind !== "string" || !/^"(?:[^"]|"")+"$/.test(named.text)) return null;
  return named.text.slice(1, -1).replaceAll('""', '"');
}
