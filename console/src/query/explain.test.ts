import { describe, expect, it } from "vitest";
import type { Sketch, Summary } from "../api/query-meta";
import { matchedText, oncePerReason, percent, sketchText, troubles, windowText } from "./explain";

const NOTHING: Sketch = {
  of: "groups",
  family: "tuple",
  size_bytes: 2048,
  was_estimated: false,
  uniques_estimate: null,
  standard_deviations: [],
  relative_error: null,
  min: null,
  max: null,
  items_seen: null,
  rank_error: null,
  count_error: null,
  active_items: null,
};

describe("a sketch in words", () => {
  it.each<[Partial<Sketch>, string]>([
    [{ uniques_estimate: 3 }, "3, exact; 2 KiB"],
    [
      {
        was_estimated: true,
        uniques_estimate: 15_200.4,
        standard_deviations: [
          { lower: 15_000, upper: 15_400 },
          { lower: 14_800.5, upper: 15_600.5 },
        ],
        relative_error: 0.0442,
        active_items: 512,
      },
      "about 15.2 k, between 14,800 and 15,601 (95 % certain); each figure may be off by 4.4 %; 512 of them are shown; 2 KiB",
    ],
    [{ rank_error: 0, items_seen: 9, min: 28.9, max: 34 }, "of 9 values from 28.9 to 34, exact; 2 KiB"],
    [
      { was_estimated: true, rank_error: 0.0017, items_seen: 1_000_000, min: 0, max: 1 },
      "of 1,000,000 values from 0 to 1, ranks may be off by 0.17 % of them (99 % certain); 2 KiB",
    ],
    [{ count_error: 0, items_seen: 1 }, "of 1 value, counts are exact; 2 KiB"],
    [
      { was_estimated: true, count_error: 12, items_seen: 5000 },
      "of 5,000 values, counts may be too high by up to 12; 2 KiB",
    ],
  ])("%j", (change, text) => {
    expect(sketchText({ ...NOTHING, ...change }).text).toBe(text);
  });

  it("is named after its aggregate", () => {
    expect(sketchText({ ...NOTHING, of: "COUNT(DISTINCT a)" }).of).toBe("COUNT(DISTINCT a)");
  });
});

describe("a window in words", () => {
  const bounds = { start_ms: null, end_ms: null };
  const told = { sketches: [], notes: [] };
  const window = { name: "tumbling time", number: 3, size: 5000, emit_time_ms: 0, ...bounds, records: 1, ...told };
  const hour = { start_ms: new Date(2026, 1, 3, 14).getTime(), end_ms: new Date(2026, 1, 3, 15).getTime() };
  it.each([
    [window, "Window 3, every 5 s, of 1 record"],
    [{ ...window, size: 500 }, "Window 3, every 500 ms, of 1 record"],
    [{ ...window, name: "tumbling records", size: 2, records: 2 }, "Window 3, every 2 records, of 2 records"],
    [{ ...window, name: "additive time" }, "Window 3, every 5 s, all since the start, of 1 record"],
    [{ ...window, ...hour }, "Window 3, 2026-02-03 14:00:00 to 15:00:00, of 1 record"],
    [
      { ...window, ...hour, end_ms: new Date(2026, 1, 4).getTime() },
      "Window 3, 2026-02-03 14:00:00 to 2026-02-04 00:00:00, of 1 record",
    ],
  ])("%j", (meta, text) => {
    expect(windowText(meta)).toBe(text);
  });
});

describe("remarks", () => {
  it("name each reason once", () => {
    const ranks = "ranks may be off by 1.7 % of all values";
    expect(
      oncePerReason([
        `p50 is an estimate: ${ranks}`,
        "the stream is gone; ask again",
        `p95 is an estimate: ${ranks}`,
        "the stream is gone; ask again",
        "users is an estimate: it lies between 3 and 5",
        `p99 is an estimate: ${ranks}`,
      ]),
    ).toEqual([
      "the stream is gone; ask again",
      `p50, p95 and p99 are estimates: ${ranks}`,
      "users is an estimate: it lies between 3 and 5",
    ]);
  });
});

describe("the summary of a query", () => {
  const summary: Summary = {
    cause: "size",
    stream: "telemetry.default",
    received_ms: 0,
    elapsed_us: 0,
    records_seen: 0,
    matched: 0,
    dropped: 0,
    evaluation_errors: 0,
    not_json: 0,
    skipped: 0,
    late: 0,
    clamped: [],
    errors: [],
    sketches: [],
    notes: [],
  };

  it("has no remarks if nothing was left out", () => {
    expect(troubles(summary)).toEqual([]);
  });

  it("names each omission and its reason", () => {
    const lines = troubles({
      ...summary,
      dropped: 1,
      not_json: 1,
      late: 2,
      clamped: [{ setting: "query.rows_max", given: 1000 }],
      errors: [{ error: "the stream is gone", resolution: "ask again" }],
    });
    expect(lines).toEqual([
      "1 row left out by the server: this page was too slow",
      "1 record of the stream was not JSON",
      "2 records came after the windows of their times; a longer DELAY waits for them",
      "query.rows_max allows only 1,000",
      "the stream is gone; ask again",
    ]);
  });

  it("shows the share of matches with enough digits", () => {
    expect(matchedText({ ...summary, matched: 1, records_seen: 3000 })).toBe("1 (0.033 %)");
    expect(matchedText(summary)).toBe("0");
    expect([percent(0.5), percent(0), percent(1)]).toEqual(["50 %", "0 %", "100 %"]);
  });
});
