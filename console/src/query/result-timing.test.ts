import { describe, expect, it } from "vitest";
import { resultTiming, waitingText } from "./result-timing";

describe("the time of a query's result", () => {
  it.each([
    ["SELECT * FROM STREAM(60000, TIME)", {}, { kind: "rows" }],
    ["SELECT a FROM STREAM(60000, TIME) WHERE b = 'COUNT(*)' -- GROUP BY", {}, { kind: "rows" }],
    ["SELECT COUNT(*) FROM STREAM(8000, TIME)", {}, { kind: "after", after_ms: 8_000 }],
    ["select top(3, a) from stream( 8000 , time )", {}, { kind: "after", after_ms: 8_000 }],
    ['SELECT DISTINCT item FROM "orders"', {}, { kind: "stop" }],
    ["SELECT MAX(a) FROM STREAM(MAX, TIME)", {}, { kind: "stop" }],
    ['SELECT SUM(n) FROM "orders"', { from: "earliest" }, { kind: "read" }],
    ['SELECT SUM(n) FROM "orders"', { from: "earliest", until: "never" }, { kind: "stop" }],
    ["SELECT SUM(n) FROM STREAM(8000, TIME)", { from: "earliest", until: "now" }, { kind: "read" }],
    ["SELECT SUM(n) FROM STREAM() WINDOWING TUMBLING(2000, TIME)", {}, { kind: "every", every_ms: 2_000 }],
    ["SELECT SUM(n) FROM STREAM() WINDOWING EVERY(500, TIME, ALL)", {}, { kind: "every", every_ms: 500 }],
    ["SELECT SUM(n) FROM STREAM() WINDOWING TUMBLING(3, RECORD)", {}, { kind: "records", records: 3 }],
    ["SELECT SUM(n) FROM STREAM() WINDOWING EVERY(500, TIME, LAST, 900, TIME)", {}, { kind: "every", every_ms: 500 }],
    ["SELECT SUM(n) FROM STREAM() WINDOWING SESSION(500, TIME)", {}, { kind: "window" }],
    ["SELECT SUM(n) FROM STREAM() WINDOWING TUMBLING(1, DAY, 'UTC') LIMIT 5", {}, { kind: "window" }],
    ["SELECT SUM(n) FROM STREAM() WINDOWING TUMBLING(500, TIME) ON at DELAY 5", {}, { kind: "window" }],
  ] as const)("%s %j", (text, range, timing) => {
    expect(resultTiming(text, range)).toEqual(timing);
  });
});

describe("who waits for a result", () => {
  it.each([
    [{ kind: "rows" }, 0, "Waiting for the first record that matches…"],
    [{ kind: "after", after_ms: 8_000 }, 0, "The result comes in 8 s"],
    [{ kind: "after", after_ms: 8_000 }, 7_100, "The result comes in 1 s"],
    [{ kind: "after", after_ms: 8_000 }, 8_000, "The result comes now…"],
    [{ kind: "after", after_ms: 90_000 }, 0, "The result comes in 1 min 30 s"],
    // Windows before this one were empty.
    [{ kind: "every", every_ms: 10_000 }, 24_000, "The result comes in 6 s"],
    [{ kind: "records", records: 3 }, 0, "The result comes after 3 records that match"],
    [{ kind: "window" }, 0, "A result comes when a window has ended"],
    [{ kind: "read" }, 0, "The result comes when all records are read…"],
    [{ kind: "stop" }, 0, "The result comes when the query is stopped"],
  ] as const)("%j after %d ms: %s", (timing, elapsed_ms, text) => {
    expect(waitingText(timing, elapsed_ms)).toBe(text);
  });
});
