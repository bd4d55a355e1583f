/** The document of a job as YAML, from the JSON that the server keeps: numbers keep their digits, keys their order. */
import { rawMembers, rawParts } from "../api/raw-json";

/** Lines that have room in the editor beside the graph. */
const LINE_MAX = 72;
/** Keys of a document whose members stand in lines of their own. */
const OPEN_KEYS = new Set(["sources", "transforms", "sinks", "use", "routes", "hooks", "tests"]);
const RESUME = "resume_from";
/** Keys of one submission; a copy is another one. It would be refused in the place of a job that has gone on from a third. */
const OF_SUBMISSION = ["id", RESUME];

/** The document as a copy begins, without its `id` and `resume_from`; with `earlier` it goes on from the state of the job with that id. */
export function documentCopy(json: string, earlier: string | null): string {
  const members = rawMembers(json);
  for (const key of OF_SUBMISSION) members.delete(key);
  if (earlier !== null) members.set(RESUME, JSON.stringify(earlier));
  const texts = inOrder(members).map(([key, value]) => {
    const isOpen = OPEN_KEYS.has(key) && /^[[{]\s*[^\]}\s]/.test(value);
    const text = isOpen ? `${keyText(key)}:\n${block(value, "  ")}` : member(key, value, "");
    // Nodes, routes and tests are set apart.
    return isOpen ? `\n${text}` : text;
  });
  return `${texts.join("\n")}\n`;
}

/** The members in their order, `resume_from` behind the name. */
function inOrder(members: ReadonlyMap<string, string>): [string, string][] {
  const [resume, others] = [members.get(RESUME), [...members].filter(([key]) => key !== RESUME)];
  const at = others.findIndex(([key]) => key === "name") + 1;
  return resume === undefined ? others : others.toSpliced(at, 0, [RESUME, resume]);
}

function block(value: string, indent: string): string {
  if (value.startsWith("{")) {
    return [...rawMembers(value)].map(([key, inner]) => indent + member(key, inner, indent)).join("\n");
  }
  return rawParts(value)
    .map((item) => {
      const flow = flowText(item);
      if (!isStructure(item) || fits(indent.length + 2, flow)) return `${indent}- ${flow}`;
      return `${indent}- ${block(item, `${indent}  `).trimStart()}`;
    })
    .join("\n");
}

/** A key with its value: in one line if there is room for it. */
function member(key: string, value: string, indent: string): string {
  const name = keyText(key);
  const deeper = `${indent}  `;
  if (value.startsWith('"')) return `${name}: ${lines(JSON.parse(value) as string, deeper) ?? flowText(value)}`;
  const flow = flowText(value);
  const fitsHere = fits(indent.length + name.length + 2, flow);
  return fitsHere || !isStructure(value) ? `${name}: ${flow}` : `${name}:\n${block(value, deeper)}`;
}

function fits(before: number, text: string): boolean {
  return before + text.length <= LINE_MAX;
}

/** An object or a list that is not empty. */
function isStructure(value: string): boolean {
  return /^[[{]\s*[^\]}\s]/.test(value);
}

/** A text of several lines as a block; null for others. */
function lines(text: string, indent: string): string | null {
  const ends = text.endsWith("\n");
  const written = (ends ? text.slice(0, -1) : text).split("\n");
  // Blocks that begin with a space, or end with an empty line, need more marks; control characters need quotation marks.
  const isSimple = /^\S/.test(text) && written.at(-1) !== "" && !written.some((line) => /\p{Cc}/u.test(line));
  if (!isSimple || !text.includes("\n")) return null;
  const body = written.map((line) => (line === "" ? "" : indent + line));
  return `${ends ? "|" : "|-"}\n${body.join("\n")}`;
}

function flowText(value: string): string {
  if (value.startsWith("{")) {
    const members = [...rawMembers(value)].map(([key, inner]) => `${keyText(key)}: ${flowText(inner)}`);
    return members.length === 0 ? "{}" : `{ ${members.join(", ")} }`;
  }
  if (value.startsWith("[")) return `[${rawParts(value).map(flowText).join(", ")}]`;
  if (!value.startsWith('"')) return value;
  const text = JSON.parse(value) as string;
  if (isPlain(text)) return text;
  return text.includes('"') && !/['\p{Cc}]/u.test(text) ? `'${text}'` : JSON.stringify(text);
}

/** Words that some readers of YAML take for something else than a text. */
const RESERVED = /^(?:true|false|null|yes|no|on|off|y|n)$/i;

function isPlain(text: string): boolean {
  const isWords = /^[A-Za-z][\w./()-]*(?: [\w./()-]+)*$/.test(text) || /^\d+(?:ms|s|m|h|d|B|KiB|MiB|GiB)$/.test(text);
  return isWords && !RESERVED.test(text);
}

function keyText(key: string): string {
  return /^[A-Za-z_$][\w.$?-]*$/.test(key) && !/^(?:true|false|null)$/i.test(key) ? key : JSON.stringify(key);
}
