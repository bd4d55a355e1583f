import { describe, expect, it } from "vitest";
import { stepped } from "../format";
import { legendStep, tickLabel, timeRange, valueRange } from "./axis";

describe("the axis of time", () => {
  it("has some length however little there is to show", () => {
    expect(timeRange(null, null, 300)).toEqual([0, 1]);
    expect(timeRange(1000, 1000, 300)).toEqual([940, 1000]);
    expect(timeRange(1000, 1000, undefined)).toEqual([999, 1001]);
  });

  it("shows the last part only when there is more than it may show", () => {
    expect(timeRange(1000, 1100, 300)).toEqual([1000, 1100]);
    expect(timeRange(1000, 1900, 300)).toEqual([1600, 1900]);
    expect(timeRange(1000, 1900, undefined)).toEqual([1000, 1900]);
  });

  it("labels its ticks as precisely as their distance needs", () => {
    const moment = new Date(2013, 0, 5, 6, 7, 8, 90).getTime() / 1000;
    expect(tickLabel(moment, 0.01)).toBe("06:07:08.090");
    expect(tickLabel(moment, 10)).toBe("06:07:08");
    expect(tickLabel(moment, 60)).toBe("06:07");
    expect(tickLabel(moment, 7200)).toBe("01-05 06:07");
    expect(tickLabel(moment, 86_400)).toBe("2013-01-05");
  });
});

describe("the axis of values", () => {
  it("leaves air above, and below unless it begins at zero", () => {
    expect(valueRange(0, 100, true)).toEqual([0, 108]);
    expect(valueRange(50, 100, false)).toEqual([46, 104]);
    expect(valueRange(-5, 10, true)[0]).toBe(-5);
  });

  it("is never empty", () => {
    expect(valueRange(null, null, true)).toEqual([0, 1]);
    for (const value of [0, 7, -7]) {
      const [low, high] = valueRange(value, value, false);
      expect(low).toBeLessThan(value);
      expect(high).toBeGreaterThan(value);
    }
  });
});

describe("the legend", () => {
  it.each([
    [[123_451, 123_458], false, "123,458"],
    [[52.52, 52.52001], false, "52.52001"],
    [[52.52001], false, "52.52001"],
    [[0, null, 26_134], true, "26.1 k"],
    [[null], false, "0"],
  ])("has as many digits as the spread of the values needs: %j", (values, fromZero, text) => {
    expect(stepped(values.at(-1) ?? 0, legendStep([values], fromZero))).toBe(text);
  });
});
