/** The places in a document that findings point at. */
import type { JobFinding } from "../api/job-documents";
import type { FieldEdit } from "../parts/field-edit";

/** The index of a line and a column; both count from 1, columns in whole characters. */
export function indexOf(text: string, line: number, column: number): number {
  let start = 0;
  for (let passed = 1; passed < line; passed += 1) {
    const end = text.indexOf("\n", start);
    if (end < 0) break;
    start = end + 1;
  }
  const end = text.indexOf("\n", start);
  const characters = Array.from(text.slice(start, end < 0 ? text.length : end)).slice(0, Math.max(column - 1, 0));
  return start + characters.join("").length;
}

/** Puts the nearest valid name in the place of the one that was found; null if the text there is another one by now. */
export function withNearest(text: string, finding: JobFinding): FieldEdit | null {
  const { nearest, bundle, line, column } = finding;
  const value = namedIn(finding);
  if (nearest === null || bundle !== null || value === "") return null;
  const at = indexOf(text, line, column);
  const from = text[at] === '"' || text[at] === "'" ? at + 1 : at;
  return text.startsWith(value, from) ? { from, to: from + value.length, text: nearest } : null;
}

function namedIn({ value }: JobFinding): string {
  try {
    const named: unknown = JSON.parse(value ?? '""');
    return typeof named === "string" ? named : "";
  } catch {
    return "";
  }
}
