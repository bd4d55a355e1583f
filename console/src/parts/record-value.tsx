/** Keys and values of records: on one line, or in full. JSON stays as it was written; bytes are hexadecimal. */
import type { ComponentChildren } from "preact";
import type { RecordValue } from "../api/records";
import { bytes, counted } from "../format";
import { hexRows, prettyJson } from "../live/preview";

/** Characters of a line; a row shows fewer. */
const LINE_MAX_CHARS = 400;
/** Characters of a value in full, so that a large one does not stop the page. */
const WHOLE_MAX_CHARS = 256 << 10;
const HEX_MAX_BYTES = 4 << 10;
const LINE_BYTES = 24;

export function RecordLine({ value }: { value: RecordValue }): ComponentChildren {
  switch (value.kind) {
    case "none":
      return <span class="absent">none</span>;
    case "json":
    case "text":
      return <span title={value.text.slice(0, 2_000)}>{value.text.slice(0, LINE_MAX_CHARS)}</span>;
    case "bytes":
      return (
        <span>
          {hexLine(value.bytes)} <small class="quiet">{bytes(value.bytes.length)}</small>
        </span>
      );
  }
}

/** `ff 00 1a …`. */
export function hexLine(all: Uint8Array): string {
  const shown = [...all.subarray(0, LINE_BYTES)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  return all.length > LINE_BYTES ? `${shown} …` : shown;
}

/** What a key is called where there is room for text only. */
export function keyLabel(key: RecordValue): string {
  switch (key.kind) {
    case "none":
      return "without key";
    case "bytes":
      return hexLine(key.bytes);
    case "json":
    case "text":
      return key.text;
  }
}

/** Bytes that the value takes. */
export function valueLength(value: RecordValue): number {
  switch (value.kind) {
    case "none":
      return 0;
    case "bytes":
      return value.bytes.length;
    case "json":
    case "text":
      return new TextEncoder().encode(value.text).length;
  }
}

const NAMES: Readonly<Record<RecordValue["kind"], string>> = { none: "", json: "JSON", text: "text", bytes: "bytes" };

export function RecordBlock({ value }: { value: RecordValue }): ComponentChildren {
  return (
    <section class="stored-value" aria-label="Value">
      <h3>
        Value <small>{value.kind === "none" ? "" : `${NAMES[value.kind]}, ${bytes(valueLength(value))}`}</small>
      </h3>
      <Whole value={value} />
    </section>
  );
}

function Whole({ value }: { value: RecordValue }): ComponentChildren {
  switch (value.kind) {
    case "none":
      return <p class="quiet">There is none. In a compacted topic this deletes the key.</p>;
    case "bytes":
      return (
        <>
          <pre class="hex" tabIndex={0} aria-label="Bytes of the value">
            {hexRows(value.bytes.subarray(0, HEX_MAX_BYTES))
              .map((row) => `${row.offset}  ${row.hex.padEnd(47)}  ${row.text}\n`)
              .join("")}
          </pre>
          {value.bytes.length > HEX_MAX_BYTES && <p class="quiet">The first {bytes(HEX_MAX_BYTES)}.</p>}
        </>
      );
    case "json":
    case "text": {
      const whole = value.kind === "json" ? (prettyJson(value.text) ?? value.text) : value.text;
      return (
        <>
          <pre tabIndex={0} aria-label="Text of the value">
            {whole.slice(0, WHOLE_MAX_CHARS)}
          </pre>
          {whole.length > WHOLE_MAX_CHARS && <p class="quiet">The first {counted(WHOLE_MAX_CHARS, "character")}.</p>}
        </>
      );
    }
  }
}
