import { describe, expect, it } from "vitest";
import { ago, bytes, counted, cutMiddle, duration, latency, short, stepped, whole } from "./format";

describe("numbers", () => {
  it.each([
    [whole(1234567), "1,234,567"],
    [short(0), "0"],
    [short(0.423), "0.42"],
    [short(12.34), "12.3"],
    [short(812.4), "812"],
    [short(4312), "4,312"],
    [short(26115), "26.1 k"],
    [short(1_250_000), "1.25 M"],
    [bytes(812), "812 B"],
    [bytes(4300), "4.2 KiB"],
    [bytes(96 * 1024 * 1024), "96 MiB"],
    [latency(0), "0 ms"],
    [latency(0.24), "240 µs"],
    [latency(3.44), "3.44 ms"],
    [latency(1240), "1.24 s"],
    [counted(1, "row"), "1 row"],
    [counted(1200, "row"), "1,200 rows"],
  ])("%s reads %s", (text, expected) => {
    expect(text).toBe(expected);
  });
});

describe("times", () => {
  it.each([
    [duration(42.9), "42 s"],
    [duration(185), "3 min 5 s"],
    [duration(7800), "2 h 10 min"],
    [duration(86_400 * 4 + 3600 * 3), "4 d 3 h"],
    [ago(1000, 1900), "now"],
    [ago(0, 12_000), "12 s ago"],
    [ago(0, 200_000), "3 min ago"],
    [ago(0, 86_400_000 * 8), "8 d ago"],
    [ago(0, 86_400_000 * 365 * 13), "12 y ago"],
    [ago(300_000, 0), "in 5 min"],
  ])("%s reads %s", (text, expected) => {
    expect(text).toBe(expected);
  });
});

describe("values that are a step apart", () => {
  it.each([
    [[123_451, 123_452, 123_458], 1, ["123,451", "123,452", "123,458"]],
    [[52.52, 52.52001, 52.52002], 0.00001, ["52.52", "52.52001", "52.52002"]],
    [[12.25, 12.5, 13], 0.25, ["12.25", "12.5", "13"]],
    [[120_000, 122_500, 125_000], 2_500, ["120 k", "122.5 k", "125 k"]],
    [[0, 500_000, 1_000_000], 500_000, ["0", "500 k", "1 M"]],
    [[-0.0002, 0, 0.0002], 0.0002, ["-0.0002", "0", "0.0002"]],
  ])("have as many digits as the step needs: %j by %d", (values, step, texts) => {
    expect(values.map((value) => stepped(value, step))).toEqual(texts);
  });
});

describe("a long name", () => {
  it.each([
    ["short", "short"],
    ["exactly-10", "exactly-10"],
    ["sensor-0000000000000017", "senso…0017"],
    ["🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀🦀", "🦀🦀🦀🦀🦀…🦀🦀🦀🦀"],
  ])("%s is shown as %s in ten characters", (text, cut) => {
    expect(cutMiddle(text, 10)).toBe(cut);
  });
});
