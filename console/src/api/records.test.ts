import { describe, expect, it } from "vitest";
import { decodeRecord, decodeRecords, decodeTailEvent, positionOf, positionText } from "./records";

const PLACE = '"partition":1,"offset":7,"timestamp":"2026-01-31T12:00:00.000Z"';

describe("a record", () => {
  it.each([
    ['"key":"a","value":{"n":12345678901234567890}', { kind: "json", text: '{"n":12345678901234567890}' }],
    ['"key":null,"value":null', { kind: "none" }],
    ['"key":"a","value":"text"', { kind: "json", text: '"text"' }],
    ['"key":"a","value_text":"plain"', { kind: "text", text: "plain" }],
    ['"key":"a","value_base64":"/wA="', { kind: "bytes", bytes: Uint8Array.from([255, 0]) }],
  ])("with %s keeps its value as it is", (members, value) => {
    expect(decodeRecord(`{${PLACE},${members}}`).value).toEqual(value);
  });

  it("has a line for each header", () => {
    const { headers, key } = decodeRecord(
      `{${PLACE},"key_base64":"/w==","value":1,"headers":{"a":["x",null],"b":"2"}}`,
    );
    expect(headers).toEqual([
      ["a", "x"],
      ["a", "null"],
      ["b", "2"],
    ]);
    expect(key).toEqual({ kind: "bytes", bytes: Uint8Array.from([255]) });
  });
});

describe("a page of records", () => {
  it("says where the next one begins", () => {
    const { records, next } = decodeRecords(`{"records":[{${PLACE},"key":null,"value":1}],"gaps":[],"next":"0:3,1:8"}`);
    expect(records.map(({ partition, offset }) => [partition, offset])).toEqual([[1, 7]]);
    expect(positionText(next)).toBe("0:3,1:8");
  });

  it("without a position is refused", () => {
    expect(() => decodeRecords('{"records":[]}')).toThrow("at answer.next where a string belongs");
    expect(() => positionOf("soon")).toThrow("a position");
  });
});

describe("an event of a tail", () => {
  it("may fail with a reason, and may be unknown", () => {
    expect(decodeTailEvent("failed", '{"cause":"gone"}')).toEqual({ kind: "failed", reason: "gone" });
    expect(decodeTailEvent("position", "{}")).toBeNull();
  });
});
