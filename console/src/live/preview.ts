/** How the bytes of a value are shown: as JSON, text, an image, or in hexadecimal. */

/** Bytes of a value that are shown as text. */
export const TEXT_MAX_BYTES = 256 << 10;
/** The largest image that is shown. */
export const IMAGE_MAX_BYTES = 8 << 20;
/** Bytes that are shown in hexadecimal. */
const HEX_MAX_BYTES = 4 << 10;
const HEX_ROW_BYTES = 16;

const IMAGE = /^image\/(?:png|jpeg|gif|webp|avif|bmp|svg\+xml)\b/;

export type Preview =
  | { kind: "empty" }
  | { kind: "json"; text: string }
  | { kind: "text"; text: string }
  | { kind: "image"; type: string }
  | { kind: "hex"; rows: HexRow[]; shown: number };

export interface HexRow {
  offset: string;
  hex: string;
  text: string;
}

/** Bytes of a value that are fetched to show it. */
export function bytesToFetch(contentType: string, length: number): number {
  return IMAGE.test(contentType) && length <= IMAGE_MAX_BYTES ? IMAGE_MAX_BYTES : TEXT_MAX_BYTES;
}

/** `whole`: `bytes` are all of the value. */
export function previewOf(bytes: Uint8Array, whole: boolean, contentType: string | null): Preview {
  if (bytes.length === 0) return { kind: "empty" };
  const type = imageType(bytes, contentType ?? "");
  if (whole && type !== null) return { kind: "image", type };
  const text = textOf(bytes, whole);
  if (text === null) return { kind: "hex", rows: hexRows(bytes.subarray(0, HEX_MAX_BYTES)), shown: HEX_MAX_BYTES };
  const pretty = whole && /^\s*[[{]/.test(text) ? prettyJson(text) : null;
  return pretty === null ? { kind: "text", text } : { kind: "json", text: pretty };
}

/** The type of an image, by its content type, else by its first bytes. */
function imageType(bytes: Uint8Array, contentType: string): string | null {
  const [named] = IMAGE.exec(contentType) ?? [];
  if (named !== undefined) return named;
  const begins = (...signature: number[]): boolean => signature.every((byte, index) => bytes[index] === byte);
  if (begins(0x89, 0x50, 0x4e, 0x47)) return "image/png";
  if (begins(0xff, 0xd8, 0xff)) return "image/jpeg";
  if (begins(0x47, 0x49, 0x46, 0x38)) return "image/gif";
  return null;
}

/** The bytes as text; null if they are none. The end of a value that was cut may be half a character. */
function textOf(bytes: Uint8Array, whole: boolean): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !whole });
    // Control characters other than white space mean that this is no text.
    return /(?![\t\n\r\f])\p{Cc}/u.test(text) ? null : text;
  } catch {
    return null;
  }
}

/** JSON with a line for each member. Numbers and strings stay as they are written; null if it is no JSON. */
export function prettyJson(text: string): string | null {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let depth = 0;
  const line = (): string => `\n${"  ".repeat(depth)}`;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? [];
  const pieces = tokens.map((token, index) => {
    const [before, after] = [tokens[index - 1] ?? "", tokens[index + 1] ?? ""];
    if (token === "{" || token === "[") {
      depth += 1;
      return "}]".includes(after) ? token : token + line();
    }
    if (token === "}" || token === "]") {
      depth -= 1;
      return before === "{" || before === "[" ? token : line() + token;
    }
    if (token === ",") return token + line();
    return token === ":" ? ": " : token;
  });
  return pieces.join("");
}

export function hexRows(bytes: Uint8Array): HexRow[] {
  const rows: HexRow[] = [];
  for (let at = 0; at < bytes.length; at += HEX_ROW_BYTES) {
    const row = [...bytes.subarray(at, at + HEX_ROW_BYTES)];
    rows.push({
      offset: at.toString(16).padStart(6, "0"),
      hex: row.map((byte) => byte.toString(16).padStart(2, "0")).join(" "),
      text: row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join(""),
    });
  }
  return rows;
}
