import { describe, expect, it } from "vitest";
import type { JsonObject } from "../api/decode";
import type { Row } from "../live/session";
import { chartChoice, NONE, shapeOf } from "./chart-choice";

function rows(window: number | null, ...records: JsonObject[]): Row[] {
  return records.map((record, index) => ({ number: index + 1, at_ms: 1000, window, record }));
}

const GROUPS = rows(1, { origin: "EWR", n: 2, mean: 24 }, { origin: "JFK", n: 2, mean: 23 });

describe("the chart of an answer", () => {
  it("is a line for each group of windows", () => {
    const choice = chartChoice(["origin", "n", "mean"], GROUPS, "windows", new URLSearchParams());
    expect(choice).toMatchObject({ kind: "line", columns: ["n"], time: null, by: ["origin"] });
  });

  it("is bars for an answer that came at once, labelled by the naming column", () => {
    const quantiles = rows(null, { Quantile: 0, Value: 7 }, { Quantile: 1, Value: 9 });
    const choice = chartChoice(["Quantile", "Value"], quantiles, "once", new URLSearchParams());
    expect(choice).toMatchObject({ kind: "bar", columns: ["Value"], by: ["Quantile"] });
  });

  it("of single rows runs over their time column", () => {
    const single = rows(null, { at: "2013-01-01T06:00:00Z", temp: 1 }, { at: "2013-01-01T07:00:00Z", temp: 2 });
    expect(chartChoice(["at", "temp"], single, "rows", new URLSearchParams())).toMatchObject({ time: "at", by: [] });
  });

  it("follows the address as far as possible", () => {
    const params = new URLSearchParams({ as: "bar", chart: "mean,n,gone", by: NONE });
    const choice = chartChoice(["origin", "n", "mean"], GROUPS, "windows", params);
    expect(choice).toMatchObject({ kind: "bar", columns: ["n", "mean"], by: [] });
    const nonsense = new URLSearchParams({ as: "pie", chart: "gone", by: "gone" });
    expect(chartChoice(["origin", "n"], GROUPS, "windows", nonsense)).toMatchObject({ columns: ["n"], by: ["origin"] });
  });

  it("is none without numbers", () => {
    expect(chartChoice(["origin"], GROUPS, "windows", new URLSearchParams())).toBeNull();
  });
});

describe("the shape of an answer", () => {
  it("is windows, one result at the end, or rows", () => {
    const window = {
      name: "tumbling time",
      number: 1,
      size: 1,
      emit_time_ms: 1,
      start_ms: null,
      end_ms: null,
      records: 1,
      sketches: [],
      notes: [],
    };
    expect(shapeOf({ state: { kind: "idle" }, window }, [])).toBe("windows");
    expect(shapeOf({ state: { kind: "ended", summary: null }, window: null }, GROUPS)).toBe("once");
    expect(shapeOf({ state: { kind: "live", id: "", since_ms: 0 }, window: null }, GROUPS)).toBe("rows");
    expect(shapeOf({ state: { kind: "ended", summary: null }, window: null }, GROUPS.slice(1))).toBe("rows");
  });
});
