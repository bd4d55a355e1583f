/** A JSON value in a cell or a line: short, with its whole text in the title. */
import type { ComponentChildren } from "preact";
import type { Json } from "../api/decode";
import { cutMiddle } from "../format";

const TEXT_MAX_CHARS = 120;
/** Beyond these a number shows how it is stored, not what was measured: 10.357019999999999. */
const DIGITS_MAX = 12;

export function textOf(value: Json | undefined): string {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

export function Value({ value }: { value: Json | undefined }): ComponentChildren {
  if (value === undefined)
    return (
      <span class="absent" aria-label="absent">
        –
      </span>
    );
  if (value === null) return <span class="absent">null</span>;
  const text = textOf(value);
  if (typeof value === "number") {
    const rounded = String(Number(value.toPrecision(DIGITS_MAX)));
    return rounded === text || Number.isInteger(value) ? <>{text}</> : <span title={text}>{rounded}</span>;
  }
  if (text.length <= TEXT_MAX_CHARS) return <>{text}</>;
  return <span title={text}>{text.slice(0, TEXT_MAX_CHARS)}…</span>;
}

/** Numbers stand right-aligned, under each other. */
export function alignment(value: Json | undefined): string {
  return typeof value === "number" ? "number" : "";
}

/** Longer names are cut. */
const NAME_MAX_CHARS = 30;

/** A name that is cut in its middle if it is long; its title, and what is copied of it, are the whole. */
export function Name({ text }: { text: string }): ComponentChildren {
  const cut = cutMiddle(text, NAME_MAX_CHARS);
  if (cut === text) return <>{text}</>;
  return (
    <span
      title={text}
      onCopy={(event) => {
        event.clipboardData?.setData("text/plain", text);
        event.preventDefault();
      }}
    >
      {cut}
    </span>
  );
}

/** An id whose last part stands out: most begin alike. */
export function Id({ id }: { id: string }): ComponentChildren {
  const cut = id.lastIndexOf(":") + 1;
  return (
    <span class="id" title={id}>
      {cut > 0 && (
        <span class="id-start">
          <Name text={id.slice(0, cut)} />
        </span>
      )}
      <span class="id-end">
        <Name text={id.slice(cut)} />
      </span>
    </span>
  );
}

/** The part of an id that tells one thing from its neighbours. */
export function shortId(id: string): string {
  return id.slice(id.lastIndexOf(":") + 1) || id;
}
