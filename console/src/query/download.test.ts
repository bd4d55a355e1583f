import { describe, expect, it } from "vitest";
import { fileText } from "./download";

const PLAIN = [
  { number: 1, at_ms: 0, window: null, record: { a: 'say "hi", all', b: { c: [1] } } },
  { number: 2, at_ms: 0, window: null, record: { a: null, b: 1.5 } },
];
const WINDOWS = [{ number: 1, at_ms: 1500, window: 7, record: { n: 2 } }];

describe("the file of an answer", () => {
  it("is a table with its cells quoted where they must be", () => {
    expect(fileText("csv", ["a", "b"], PLAIN)).toBe('a,b\r\n"say ""hi"", all","{""c"":[1]}"\r\n,1.5\r\n');
  });

  it("is a list of records", () => {
    expect(JSON.parse(fileText("json", ["a", "b"], PLAIN))).toEqual(PLAIN.map((row) => row.record));
    expect(fileText("json", [], [])).toBe("[]\n");
  });

  it("names the window of each row", () => {
    expect(fileText("csv", ["n"], WINDOWS)).toBe("window,given,n\r\n7,1970-01-01T00:00:01.500Z,2\r\n");
    expect(JSON.parse(fileText("json", ["n"], WINDOWS))).toEqual([
      { window: 7, given: "1970-01-01T00:00:01.500Z", record: { n: 2 } },
    ]);
  });
});
