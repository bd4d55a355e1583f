/** Server-sent events, read from a response as its bytes arrive. */

export interface ServerEvent {
  event: string;
  data: string;
}

/** The most text that may wait for the end of its event; a server that sends more is not speaking this protocol. */
export const EVENT_MAX_CHARS = 16 * 1024 * 1024;

/** Cuts text into events, however the text was cut on its way. */
export class EventParser {
  #rest = "";
  #event = "";
  #data: string[] = [];
  #chars = 0;

  /** The events that `text` completes. */
  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    // A trailing CR waits for the next piece: it may be the first half of CRLF.
    const whole = this.#rest + text;
    const usable = whole.endsWith("\r") ? whole.length - 1 : whole.length;
    let start = 0;
    for (const match of whole.slice(0, usable).matchAll(/\r\n|\n|\r/g)) {
      this.#line(whole.slice(start, match.index), events);
      start = match.index + match[0].length;
    }
    this.#rest = whole.slice(start);
    if (this.#chars + this.#rest.length > EVENT_MAX_CHARS) {
      throw new Error(`an event is longer than ${EVENT_MAX_CHARS} characters`);
    }
    return events;
  }

  #line(line: string, events: ServerEvent[]): void {
    if (line === "") {
      if (this.#data.length > 0) events.push({ event: this.#event || "message", data: this.#data.join("\n") });
      this.#event = "";
      this.#data = [];
      this.#chars = 0;
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    this.#chars += line.length;
    if (field === "event") this.#event = value;
    if (field === "data") this.#data.push(value);
  }
}

/** The events of a response, in order, until it ends. */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
  const parser = new EventParser();
  const decoder = new TextDecoder();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
