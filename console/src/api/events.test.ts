import { describe, expect, it } from "vitest";
import { EVENT_MAX_CHARS, EventParser, readEvents, type ServerEvent } from "./events";

const STREAM =
  ': a comment\n\nevent: meta\ndata: {"id":"1"}\n\nid: 7\r\nevent: rows\r\ndata: {\r\ndata:"a":"é"}\r\n\r\ndata: last\r\revent: empty\n\n';
const EVENTS: ServerEvent[] = [
  { event: "meta", data: '{"id":"1"}' },
  { event: "rows", data: '{\n"a":"é"}' },
  { event: "message", data: "last" },
];

function inPieces(text: string, size: number): ServerEvent[] {
  const parser = new EventParser();
  const events: ServerEvent[] = [];
  for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
  return events;
}

describe("server-sent events", () => {
  it("do not depend on how the stream is split", () => {
    for (let size = 1; size <= STREAM.length; size += 1) expect(inPieces(STREAM, size)).toEqual(EVENTS);
  });

  it("survive a split character", async () => {
    const bytes = new TextEncoder().encode(STREAM);
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const byte of bytes) controller.enqueue(Uint8Array.of(byte));
        controller.close();
      },
    });
    const events: ServerEvent[] = [];
    for await (const event of readEvents(body)) events.push(event);
    expect(events).toEqual(EVENTS);
  });

  it("that never end are refused", () => {
    expect(() => new EventParser().push(`data: ${"x".repeat(EVENT_MAX_CHARS)}`)).toThrow("longer than");
  });
});
