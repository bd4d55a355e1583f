/** The lines of a job's document, cut into words that are coloured. */

export type WordKind = "yaml-key" | "string" | "number" | "keyword" | "comment" | "plain";

export interface Word {
  kind: WordKind;
  text: string;
}

const WORD =
  /(?<comment>(?<=^|[ \t])#.*)|(?<key>(?:"(?:[^"\\]|\\.)*"|'[^']*'|(?<=^|[ \t,{[])[A-Za-z_$][\w.$-]*)(?=[ \t]*:(?:\s|$)))|(?<string>"(?:[^"\\]|\\.)*"?|(?<=^|[ \t,{[:])'(?:[^']|'')*'?)|(?<keyword>(?<=[ \t,{[])(?:true|false|null)(?=[ \t,}\]]|$))|(?<number>(?<=[ \t,{[])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:ms|s|m|h|d|B|KiB|MiB|GiB)?(?=[ \t,}\]]|$))/g;

/** One list of words a line; their texts are the line. */
export function colouredLines(text: string): Word[][] {
  return text.split("\n").map(wordsOf);
}

function wordsOf(line: string): Word[] {
  const words: Word[] = [];
  let at = 0;
  for (const match of line.matchAll(WORD)) {
    if (match.index > at) words.push({ kind: "plain", text: line.slice(at, match.index) });
    words.push({ kind: kindOf(match), text: match[0] });
    at = match.index + match[0].length;
  }
  if (at < line.length) words.push({ kind: "plain", text: line.slice(at) });
  return words;
}

function kindOf({ groups = {} }: RegExpExecArray): WordKind {
  if (groups.comment !== undefined) return "comment";
  if (groups.key !== undefined) return "yaml-key";
  if (groups.string !== undefined) return "string";
  return groups.keyword === undefined ? "number" : "keyword";
}
