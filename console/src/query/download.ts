/** The rows of an answer as a file to keep. */
import type { Json } from "../api/decode";
import type { Row } from "../live/session";

export type FileKind = "json" | "csv";

/** The rows of an answer with windows say which window they are of. */
export function fileText(kind: FileKind, columns: readonly string[], rows: readonly Row[]): string {
  return kind === "json" ? jsonText(rows) : csvText(columns, rows);
}

function jsonText(rows: readonly Row[]): string {
  const items = rows.map(({ window, at_ms, record }) =>
    JSON.stringify(window === null ? record : { window, given: new Date(at_ms).toISOString(), record }),
  );
  return items.length === 0 ? "[]\n" : `[\n${items.join(",\n")}\n]\n`;
}

/** As RFC 4180 has it; what is neither text nor number stands there as JSON, what is absent or null as nothing. */
function csvText(columns: readonly string[], rows: readonly Row[]): string {
  const withWindows = rows.some(({ window }) => window !== null);
  const head = [...(withWindows ? ["window", "given"] : []), ...columns];
  const lines = rows.map(({ window, at_ms, record }) => [
    ...(withWindows ? [String(window ?? ""), new Date(at_ms).toISOString()] : []),
    ...columns.map((name) => cell(record[name])),
  ]);
  return [head, ...lines].map((cells) => `${cells.map(quoted).join(",")}\r\n`).join("");
}

function cell(value: Json | undefined): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function quoted(text: string): string {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const MEDIA_TYPES: Record<FileKind, string> = { json: "application/json", csv: "text/csv" };

/** Hands the text to the browser as a file. */
export function download(kind: FileKind, text: string, now: Date): void {
  const address = URL.createObjectURL(new Blob([text], { type: MEDIA_TYPES[kind] }));
  const link = document.createElement("a");
  link.href = address;
  link.download = `query-${now.toISOString().slice(0, 19).replaceAll(":", "-")}.${kind}`;
  link.click();
  URL.revokeObjectURL(address);
}
