/** What could stand at the caret of a query: keywords, functions, fields, streams. */
import { type Completion, type Option, OPTIONS_MAX } from "../completion";
import { AGGREGATES, FUNCTIONS } from "./functions";
import { tokens, type Token } from "./text";
import { PSEUDO } from "./words";

/** What the query can name. */
export interface Known {
  fields: readonly { path: string; detail: string }[];
  streams: readonly string[];
}

const WORD_BEFORE = /(?:[$A-Za-z_][\w.]*|"[^"']*)$/;
const WORD_AFTER = /^\w*/;

const END_CLAUSES = ["ORDER BY", "WINDOWING", "LIMIT"];
const OPERATORS = ["AND", "OR", "XOR", "IN", "NOT IN", "BETWEEN", "LIKE", "RLIKE", "IS NULL", "IS NOT NULL"];
const LITERALS = ["NOT", "CASE", "NULL", "TRUE", "FALSE", "NOW"];

type Clause = "start" | "SELECT" | "FROM" | "WHERE" | "GROUP" | "HAVING" | "ORDER" | "WINDOWING" | "LIMIT";

/** What may follow a value in each clause. */
const AFTER_VALUE: Record<Clause, readonly string[]> = {
  start: [],
  SELECT: ["FROM", "AS"],
  FROM: ["WHERE", "GROUP BY", ...END_CLAUSES],
  WHERE: [...OPERATORS, "GROUP BY", ...END_CLAUSES],
  GROUP: ["HAVING", ...END_CLAUSES],
  HAVING: [...OPERATORS, ...END_CLAUSES],
  ORDER: ["DESC", "ASC", "WINDOWING", "LIMIT"],
  WINDOWING: ["LIMIT"],
  LIMIT: [],
};

/**
 * The options for the word at the caret. Null where there are none, and, unless `asked` for, where no word has begun
 * or the word is whole already.
 */
export function complete(text: string, caret: number, known: Known, asked: boolean): Completion | null {
  const word = WORD_BEFORE.exec(text.slice(0, caret))?.[0] ?? "";
  if (word === "" && !asked) return null;
  const from = caret - word.length;
  const before = tokens(text.slice(0, from), []).filter((token) => token.text.trim() !== "");
  if (isOpenText(before.at(-1)) || isPartOfNumber(text, from)) return null;
  const options = matching(candidates(before, text, known), word);
  const to = caret + (WORD_AFTER.exec(text.slice(caret))?.[0].length ?? 0);
  const isWhole = options.length === 1 && options[0]?.text === text.slice(from, to);
  return options.length === 0 || isWhole ? null : { from, to, options: options.slice(0, OPTIONS_MAX) };
}

function isOpenText(token: Token | undefined): boolean {
  return token?.kind === "string" && token.text.startsWith("'") && !/^'(?:[^']|'')*'$/.test(token.text);
}

function isPartOfNumber(text: string, from: number): boolean {
  return /[\w.]/.test(text.charAt(from - 1));
}

/** Those that begin with the word, then fields that have it inside. */
function matching(options: readonly Option[], word: string): Option[] {
  const wanted = word.toLowerCase();
  const place = ({ text }: Option): number => text.toLowerCase().indexOf(wanted);
  const begins = options.filter((option) => place(option) === 0);
  if (wanted.length < 2) return begins;
  return [...begins, ...options.filter((option) => option.kind === "field" && place(option) > 0)];
}

function candidates(before: readonly Token[], text: string, known: Known): Option[] {
  const clause = clauseOf(before);
  const last = before.at(-1)?.text.trim() ?? "";
  const lastWord = last.toUpperCase();
  if (clause === "start") return keywords(["SELECT"]);
  if (lastWord === "AS") return [];
  if (lastWord === "GROUP" || lastWord === "ORDER") return keywords(["BY"]);
  if (clause === "FROM" && !isInside(before, "STREAM")) {
    return lastWord === "FROM" ? streams(known) : keywords(AFTER_VALUE.FROM);
  }
  if (clause === "FROM") return keywords(["TIME", "MAX"]);
  if (clause === "WINDOWING") return window(before, text, known);
  if (clause === "LIMIT") return [];
  if (endsValue(before)) return keywords(AFTER_VALUE[clause]);
  return values(clause, text, known);
}

function window(before: readonly Token[], text: string, known: Known): Option[] {
  if (isInside(before, "TUMBLING")) return keywords(["TIME", "RECORD", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]);
  if (isInside(before, "EVERY")) return keywords(["TIME", "RECORD", "ALL", "LAST", "FIRST"]);
  if (isInside(before, "SESSION")) return keywords(["TIME"]);
  const last = before.at(-1)?.text.toUpperCase();
  if (last === "WINDOWING") return keywords(["TUMBLING", "EVERY", "SESSION"]);
  if (last === "ON") return values("WHERE", text, known);
  if (last === "DELAY") return [];
  const words = before.map((token) => token.text.toUpperCase());
  const hasTime = words.lastIndexOf("ON") > words.lastIndexOf("WINDOWING");
  const hasDelay = words.lastIndexOf("DELAY") > words.lastIndexOf("WINDOWING");
  return keywords([...(hasDelay ? [] : [hasTime ? "DELAY" : "ON"]), ...AFTER_VALUE.WINDOWING]);
}

function values(clause: Clause, text: string, known: Known): Option[] {
  const canAggregate = clause === "SELECT" || clause === "HAVING" || clause === "ORDER";
  const functions = [...FUNCTIONS].filter(([name]) => canAggregate || !AGGREGATES.includes(name));
  return [
    ...(clause === "SELECT" ? [] : aliases(text)),
    ...known.fields.map(({ path, detail }): Option => ({ kind: "field", text: path, detail })),
    ...functions.map(([name, detail]): Option => ({ kind: "function", text: `${name}(`, detail })),
    ...[...PSEUDO].map(([name, detail]): Option => ({ kind: "record", text: name, detail })),
    ...keywords(clause === "SELECT" ? ["DISTINCT", ...LITERALS] : LITERALS),
  ];
}

/** Names that the query itself gives. */
function aliases(text: string): Option[] {
  const names = [...text.matchAll(/\bAS\s+([A-Za-z_]\w*)/gi)].map((match) => match[1] ?? "");
  return [...new Set(names)].map((name) => ({ kind: "field", text: name, detail: "named in this query" }));
}

function streams(known: Known): Option[] {
  const own: Option = { kind: "stream", text: "STREAM()", detail: "the telemetry of this tenant" };
  return [own, ...known.streams.map((name): Option => ({ kind: "stream", text: `"${name}"`, detail: "topic" }))];
}

function keywords(words: readonly string[]): Option[] {
  return words.map((text) => ({ kind: "keyword", text, detail: "" }));
}

const CLAUSES = new Set<string>(["SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "WINDOWING", "LIMIT"]);

function clauseOf(before: readonly Token[]): Clause {
  const begins = before.findLast(({ kind, text }) => kind === "keyword" && CLAUSES.has(text.toUpperCase()));
  return begins === undefined ? "start" : (begins.text.toUpperCase() as Clause);
}

/** Whether the last parenthesis that is open is that of `name`. */
function isInside(before: readonly Token[], name: string): boolean {
  const text = before.map((token) => token.text).join(" ");
  return new RegExp(`\\b${name}\\s*\\([^()]*$`, "i").test(text);
}

/** Whether a value has just ended, so that an operator or the next clause follows. */
function endsValue(before: readonly Token[]): boolean {
  const last = before.at(-1);
  if (last === undefined) return false;
  const text = last.text.trim();
  switch (last.kind) {
    case "string":
    case "number":
    case "pseudo":
      return true;
    case "function":
      return false;
    case "keyword":
      return ["NULL", "TRUE", "FALSE", "NOW", "END", "ASC", "DESC"].includes(text.toUpperCase());
    case "plain":
      if (text.endsWith("*")) return /^(?:SELECT|DISTINCT)$/i.test(before.at(-2)?.text ?? "");
      return /[\w)\]]$/.test(text);
  }
}
