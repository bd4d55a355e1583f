import { describe, expect, it } from "vitest";
import type { JsonObject } from "../api/decode";
import { byWindow, chartColumns, keyColumns, LINES_MAX, linesOf } from "./series";
import type { Row } from "./session";

function rows(...records: JsonObject[]): Row[] {
  return records.map((record, index) => ({ number: index + 1, at_ms: 1000 * (index + 1), window: null, record }));
}

describe("the device of a row", () => {
  it("splits a chart before other columns, however many devices there are", () => {
    const rows = Array.from({ length: 3 * LINES_MAX }, (_, index): Row => ({
      number: index + 1,
      at_ms: 1000 * index,
      window: null,
      record: { place: index % 2 === 0 ? "north" : "south", $key: `sensor-${String(index)}`, temp: index },
    }));
    expect(chartColumns(["place", "$key", "temp"], rows).categorical).toEqual(["$key", "place"]);
    const lines = linesOf(rows, { columns: ["temp"], time: null, by: ["$key"] });
    expect([lines.lines.length, lines.hidden]).toEqual([LINES_MAX, 2 * LINES_MAX]);
  });
});

describe("columns that can be drawn", () => {
  it("are recognised by their values, except missing ones", () => {
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

  it("do not split into more lines than the chart can distinguish", () => {
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
    expect(linesOf(some, { columns: ["temp"], time: null, by: [] })).toEqual({
      times_s: [1, 2, 3, 5],
      lines: [{ label: "temp", values: [1, 2, 3, 5] }],
      hidden: 0,
    });
  });

  it("run over a column of moments, sorted, one for each value of another", () => {
    const six = Date.parse("2013-01-01T06:00:00Z") / 1000;
    expect(linesOf(some, { columns: ["temp"], time: "at", by: ["station"] })).toEqual({
      times_s: [six, six + 3600],
      lines: [
        { label: "EWR", values: [2, 3] },
        { label: "JFK", values: [null, 1] },
      ],
      hidden: 0,
    });
  });
});

describe("results of windows", () => {
  const results = [
    { number: 1, at_ms: 1000, window: 1, record: { n: 2, origin: "EWR", mean: 24 } },
    { number: 2, at_ms: 1000, window: 1, record: { n: 2, origin: "JFK", mean: 23 } },
    { number: 3, at_ms: 3000, window: 2, record: { n: 5, origin: "EWR", mean: 25 } },
    { number: 4, at_ms: 3000, window: 2, record: { n: 4, origin: "JFK", mean: 22 } },
  ];

  it("are distinguished by text before numbers", () => {
    expect(keyColumns(["n", "origin", "mean"], byWindow(results))).toEqual(["origin"]);
  });

  it("are distinguished by as many columns as necessary", () => {
    const some = rows({ a: "x", b: 1, n: 7 }, { a: "x", b: 2, n: 7 }, { a: "y", b: 1, n: 7 });
    expect(keyColumns(["a", "b", "n"], [some])).toEqual(["a", "b"]);
    expect(keyColumns(["a"], [some])).toEqual([]);
  });

  it("of one row each need no distinguishing column", () => {
    expect(keyColumns(["n"], byWindow(results.slice(1, 3)))).toEqual([]);
  });

  it("become a line for each group and column, a point for each window", () => {
    expect(linesOf(results, { columns: ["n", "mean"], time: null, by: ["origin"] })).toEqual({
      times_s: [1, 3],
      lines: [
        { label: "EWR mean", values: [24, 25] },
        { label: "EWR n", values: [2, 5] },
        { label: "JFK mean", values: [23, 22] },
        { label: "JFK n", values: [2, 4] },
      ],
      hidden: 0,
    });
  });

  it("say how many lines had no room", () => {
    const many = rows(...Array.from({ length: LINES_MAX + 3 }, (_, index) => ({ name: `n${index}`, value: index })));
    const { lines, hidden } = linesOf(many, { columns: ["value"], time: null, by: ["name"] });
    expect([lines.length, hidden]).toEqual([LINES_MAX, 3]);
  });
});
