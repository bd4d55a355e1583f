/** JSON cut into its parts as they were written: numbers keep their digits, objects their order. */

/** Each member of an object, by name, as text. Only for text that `JSON.parse` takes. */
export function rawMembers(text: string): Map<string, string> {
  const members = new Map<string, string>();
  for (const part of rawParts(text)) {
    const colon = endOfString(part, part.indexOf('"')) + 1;
    const name: unknown = JSON.parse(part.slice(0, colon));
    members.set(String(name), part.slice(part.indexOf(":", colon) + 1).trim());
  }
  return members;
}

/** What stands between the commas of an array or object, as text. */
export function rawParts(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let from = 0;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (character === '"') at = endOfString(text, at);
    else if (character === "{" || character === "[") {
      depth += 1;
      if (depth === 1) from = at + 1;
    } else if (character === "}" || character === "]") {
      depth -= 1;
      if (depth === 0) push(parts, text.slice(from, at));
    } else if (character === "," && depth === 1) {
      push(parts, text.slice(from, at));
      from = at + 1;
    }
  }
  return parts;
}

function push(parts: string[], part: string): void {
  const trimmed = part.trim();
  if (trimmed !== "") parts.push(trimmed);
}

/** The place of the quotation mark that ends the string which begins at `at`. */
function endOfString(text: string, at: number): number {
  for (let end = at + 1; end < text.length; end += 1) {
    if (text[end] === "\\") end += 1;
    else if (text[end] === '"') return end;
  }
  return text.length;
}
