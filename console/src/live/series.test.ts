import { describe, expect, it } from "vitest";
import type { JsonObject } from "../api/decode";
import { chartColumns, LINES_MAX, linesOf } from "./series";
import type { Row } from "./session";

function rows(...records: JsonObject[]): Row[] {
  return records.map((record, index) => ({ number: index + 1, at_ms: 1000 * (index + 1), record }));
}

describe("columns that can be drawn", () => {
  it("are told by their values, missing ones aside", () => {
    const some = rows(
      { $timestamp: 7, temp: 1, at: "2013-01-01T06:00:00Z", station: "EWR", mixed: 1, same: "x" },
      { temp: null, at: "2013-01-01T07:00:00Z", station: "JFK", mixed: "1", same: "x" },
      { temp: 2.5, station: "EWR" },
    );
    expect(chartColumns(["$timestamp", "temp", "at", "station", "mixed", "same", "absent"], some)).toEqual({
      numeric: ["temp"],
      temporal: ["$timestamp", "at"],
      categorical: ["station"],
    });
  });

  it("do not split into more lines than can be told apart", () => {
    const many = rows(...Array.from({ length: LINES_MAX + 1 }, (_, index) => ({ name: `n${index}` })));
    expect(chartColumns(["name"], many).categorical).toEqual([]);
  });
});

describe("lines", () => {
  const some = rows(
    { temp: 1, at: "2013-01-01T07:00:00Z", station: "JFK" },
    { temp: 2, at: "2013-01-01T06:00:00Z", station: "EWR" },
    { temp: 3, at: "2013-01-01T07:00:00Z", station: "EWR" },
    { temp: "four", at: "2013-01-01T08:00:00Z", station: "EWR" },
    { temp: 5, at: "never", station: "EWR" },
  );

  it("run over the time of arrival", () => {
    expect(linesOf(some, "temp", null, null)).toEqual({
      times_s: [1, 2, 3, 5],
      lines: [{ label: "temp", values: [1, 2, 3, 5] }],
    });
  });

  it("run over a column of moments, sorted, one for each value of another", () => {
    const six = Date.parse("2013-01-01T06:00:00Z") / 1000;
    expect(linesOf(some, "temp", "at", "station")).toEqual({
      times_s: [six, six + 3600],
      lines: [
        { label: "EWR", values: [2, 3] },
        { label: "JFK", values: [null, 1] },
      ],
    });
  });
});
