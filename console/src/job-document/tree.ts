/**
 * A job's document as it is being written, read as far as it can be understood.
 *
 * This is no parser of YAML: the server's findings say what is wrong. It finds the keys, lists and texts of a document that
 * is half written, for its graph and for completion, so it never fails: a line that fits nowhere is passed over, and what
 * is not closed ends where the indentation says so.
 */

import type { Json } from "../api/decode";

export interface Scalar {
  kind: "scalar";
  text: string;
}

export interface Entry {
  key: string;
  /** Null where nothing stands yet. */
  value: Tree | null;
}

export interface Mapping {
  kind: "mapping";
  entries: Entry[];
}

export interface List {
  kind: "list";
  items: (Tree | null)[];
}

export type Tree = Scalar | Mapping | List;

export function readTree(text: string): Tree | null {
  return new Reader(text).block(0);
}

/** The tree as JSON; numbers stay texts, as what they are does not matter here. */
export function jsonOf(tree: Tree | null): Json {
  if (tree === null) return null;
  if (tree.kind === "list") return tree.items.map(jsonOf);
  if (tree.kind === "mapping") return Object.fromEntries(tree.entries.map(({ key, value }) => [key, jsonOf(value)]));
  return tree.text === "true" ? true : tree.text === "false" ? false : tree.text;
}

export function valueOf(tree: Tree | null | undefined, key: string): Tree | null {
  if (tree?.kind !== "mapping") return null;
  return tree.entries.find((entry) => entry.key === key)?.value ?? null;
}

export function entriesOf(tree: Tree | null): readonly Entry[] {
  return tree?.kind === "mapping" ? tree.entries : [];
}

export function textOf(tree: Tree | null): string | null {
  return tree?.kind === "scalar" ? tree.text : null;
}

/** A key and its colon, with a space or the end of the line behind it. */
const KEY = /(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\n]|'')*)'|([^\s,[\]{}#&*!|>'"%@`:-][^\n]*?))[ \t]*:(?=\s|$)/y;
const DOUBLE_QUOTED = /"((?:[^"\\]|\\[^])*)"?/y;
const SINGLE_QUOTED = /'((?:[^']|'')*)'?/y;
/** A plain text between brackets: up to a comma, a bracket, a colon with a space, a comment, or the end of the line. */
const FLOW_PLAIN = /(?:(?!:(?:[\s,[\]{}]|$)|[ \t]#)[^,[\]{}\n])+/y;
const DEPTH_MAX = 64;

class Reader {
  private at = 0;
  private depth = 0;
  /** The line in which a column was last asked for. */
  private line = { from: 0, to: -1 };

  constructor(private readonly text: string) {}

  /** The value that stands next, unless it is indented less than `least`. */
  block(least: number): Tree | null {
    this.skip();
    const column = this.column();
    if (this.isAtEnd() || column < least || this.depth >= DEPTH_MAX) return null;
    this.depth += 1;
    const isMapping = this.key(false) !== null || this.isKeyWithoutColon(column);
    const tree = this.isDash() ? this.list(column) : isMapping ? this.mapping(column) : this.inline(least - 1);
    this.depth -= 1;
    return tree;
  }

  private mapping(column: number): Mapping {
    const entries: Entry[] = [];
    for (;;) {
      this.skip();
      if (this.isAtEnd() || this.column() < column || (this.column() === column && this.isDash())) break;
      if (this.column() > column) {
        this.toLineEnd();
        continue;
      }
      const key = this.key(true);
      if (key === null) entries.push({ key: this.plain(), value: null });
      else entries.push({ key, value: this.valueBehindKey(column) });
    }
    return { kind: "mapping", entries };
  }

  private valueBehindKey(column: number): Tree | null {
    if (!this.isLineOver()) return this.inline(column);
    this.skip();
    if (this.isAtEnd()) return null;
    if (this.column() === column && this.isDash()) return this.list(column);
    return this.column() > column ? this.block(column + 1) : null;
  }

  private list(column: number): List {
    const items: (Tree | null)[] = [];
    for (;;) {
      this.skip();
      if (this.isAtEnd() || this.column() < column || (this.column() === column && !this.isDash())) break;
      if (this.column() > column) {
        this.toLineEnd();
        continue;
      }
      this.at += 1;
      const isOver = this.isLineOver();
      this.skip();
      items.push(isOver && this.column() <= column ? null : this.block(column + 1));
    }
    return { kind: "list", items };
  }

  /** A value that begins in this line; its further lines are indented by more than `column`. */
  private inline(column: number): Tree {
    const begins = this.text[this.at] ?? "";
    if (begins === "{" || begins === "[") {
      const tree = this.flow(column);
      // Brackets that are not closed have ended before a line that belongs to another value.
      if (!this.isOver(column)) this.toLineEnd();
      return tree;
    }
    if (begins === '"' || begins === "'") {
      const text = this.quoted();
      this.toLineEnd();
      return { kind: "scalar", text };
    }
    if (begins === "|" || begins === ">") {
      this.toLineEnd();
      return { kind: "scalar", text: this.deeperLines(column) };
    }
    const first = this.plain();
    const more = this.deeperLines(column);
    return { kind: "scalar", text: more === "" ? first : `${first} ${more}` };
  }

  /** The lines that are indented by more than `column`. */
  private deeperLines(column: number): string {
    const lines: string[] = [];
    for (;;) {
      const before = this.at;
      this.skip();
      if (this.isAtEnd() || this.column() <= column) {
        this.at = before;
        return lines.join("\n");
      }
      const from = this.at;
      this.toLineEnd();
      lines.push(this.text.slice(from, this.at));
    }
  }

  /** A value in brackets, or inside of them. It is over where a line is not indented by more than `column`. */
  private flow(column: number): Tree {
    const begins = this.text[this.at];
    if ((begins !== "{" && begins !== "[") || this.depth >= DEPTH_MAX) {
      return { kind: "scalar", text: this.flowText() };
    }
    this.depth += 1;
    this.at += 1;
    const tree = begins === "{" ? this.flowMapping(column) : this.flowList(column);
    this.depth -= 1;
    return tree;
  }

  private flowMapping(column: number): Mapping {
    const entries: Entry[] = [];
    while (this.isInside(column, "}")) {
      const key = this.flowText();
      this.skip();
      if (this.text[this.at] !== ":") {
        entries.push({ key, value: null });
        continue;
      }
      this.at += 1;
      this.skip();
      const isEmpty = this.isAtEnd() || ",}]".includes(this.text[this.at] ?? "") || this.isOver(column);
      entries.push({ key, value: isEmpty ? null : this.flow(column) });
    }
    return { kind: "mapping", entries };
  }

  private flowList(column: number): List {
    const items: Tree[] = [];
    while (this.isInside(column, "]")) items.push(this.flow(column));
    return { kind: "list", items };
  }

  /** Goes to the next member, past commas; false at the closing bracket, and where the lines end the brackets. */
  private isInside(column: number, closing: string): boolean {
    for (;;) {
      this.skip();
      if (this.isAtEnd()) return false;
      const next = this.text[this.at] ?? "";
      if (next === closing) {
        this.at += 1;
        return false;
      }
      if (this.isOver(column)) return false;
      if (next !== "," && next !== ":" && next !== "]" && next !== "}") return true;
      this.at += 1;
    }
  }

  /** True at the beginning of a line that is not indented by more than `column`. */
  private isOver(column: number): boolean {
    const from = this.lineStart();
    return this.at - from <= column && this.text.slice(from, this.at).trim() === "";
  }

  private flowText(): string {
    const begins = this.text[this.at];
    if (begins === '"' || begins === "'") return this.quoted();
    const text = this.match(FLOW_PLAIN)?.[0];
    if (text === undefined) this.at += 1;
    return text?.trim() ?? "";
  }

  private quoted(): string {
    const double = this.match(DOUBLE_QUOTED);
    if (double !== null) return unescaped(double[1] ?? "");
    return (this.match(SINGLE_QUOTED)?.[1] ?? "").replaceAll("''", "'");
  }

  /** The rest of the line without a comment. */
  private plain(): string {
    const from = this.at;
    this.toLineEnd();
    const line = this.text.slice(from, this.at);
    const comment = line.search(/(?:^|[ \t])#/);
    return (comment < 0 ? line : line.slice(0, comment)).trim();
  }

  /** The key that stands next; `goes` behind its colon. Null if the line is none. */
  private key(goes: boolean): string | null {
    const before = this.at;
    const found = this.match(KEY);
    if (!goes || found === null) this.at = before;
    if (found === null) return null;
    const [, double, single, plain = ""] = found;
    if (double !== undefined) return unescaped(double);
    if (single !== undefined) return single.replaceAll("''", "'");
    if (!/[ \t]#/.test(plain)) return plain;
    this.at = before;
    return null;
  }

  private match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found !== null) this.at = pattern.lastIndex;
    return found;
  }

  /** Goes to what stands next, past spaces, lines and comments. */
  private skip(): void {
    for (;;) {
      const next = this.text[this.at];
      if (next === "#" && (this.at === 0 || /\s/.test(this.text[this.at - 1] ?? ""))) this.toLineEnd();
      else if (next !== undefined && /\s/.test(next)) this.at += 1;
      else return;
    }
  }

  /** Goes past spaces; true if nothing but a comment stands in the rest of the line. */
  private isLineOver(): boolean {
    while (this.text[this.at] === " " || this.text[this.at] === "\t") this.at += 1;
    const next = this.text[this.at];
    return next === undefined || next === "\n" || next === "\r" || next === "#";
  }

  /** True for words with a key in the next line, as far to the right. */
  private isKeyWithoutColon(column: number): boolean {
    if (/[[\]{}"'|>]/.test(this.text[this.at] ?? "")) return false;
    const before = this.at;
    this.toLineEnd();
    this.skip();
    const isKey = this.column() === column && this.key(false) !== null;
    this.at = before;
    return isKey;
  }

  private isDash(): boolean {
    return this.text[this.at] === "-" && /^(?:\s|$)/.test(this.text.slice(this.at + 1, this.at + 2));
  }

  private isAtEnd(): boolean {
    return this.at >= this.text.length;
  }

  private toLineEnd(): void {
    const end = this.text.indexOf("\n", this.at);
    this.at = end < 0 ? this.text.length : end;
  }

  private lineStart(): number {
    // A long line is searched once, and not for each of its members.
    if (this.at < this.line.from || this.at > this.line.to) {
      const from = this.at === 0 ? 0 : this.text.lastIndexOf("\n", this.at - 1) + 1;
      const to = this.text.indexOf("\n", this.at);
      this.line = { from, to: to < 0 ? this.text.length : to };
    }
    return this.line.from;
  }

  private column(): number {
    return this.at - this.lineStart();
  }
}

function unescaped(quoted: string): string {
  try {
    const text: unknown = JSON.parse(`"${quoted}"`);
    return String(text);
  } catch {
    return quoted;
  }
}
