import { describe, expect, it } from "vitest";
import { complete, type Known } from "./completion";

const KNOWN: Known = {
  fields: [
    { path: "temp", detail: "DOUBLE" },
    { path: "temp_max", detail: "DOUBLE" },
    { path: "origin", detail: "STRING" },
    { path: "size.mm", detail: "LONG" },
  ],
  streams: ["orders"],
};

/** The options at the bar in `text`, as texts. */
function at(text: string, asked = false): string[] | null {
  const caret = text.indexOf("|");
  const completion = complete(text.replace("|", ""), caret, KNOWN, asked);
  return completion === null ? null : completion.options.map((option) => option.text);
}

describe("the completion of a query", () => {
  it.each<[string, string[]]>([
    ["s|", ["SELECT"]],
    ["SELECT te|", ["temp", "temp_max"]],
    ["SELECT MA|", ["MAX(", "temp_max"]],
    ["select or|", ["origin"]],
    ["SELECT size.|", ["size.mm"]],
    ["SELECT temp f|", ["FROM"]],
    ["SELECT * f|", ["FROM"]],
    ["SELECT temp FROM s|", ["STREAM()"]],
    ['SELECT temp FROM "o|', ['"orders"']],
    ["SELECT temp FROM STREAM(1000, t|", ["TIME"]],
    ["SELECT temp FROM STREAM() wh|", ["WHERE"]],
    ["SELECT temp FROM STREAM() WHERE o|", ["origin"]],
    ["SELECT temp FROM STREAM() WHERE temp > 5 a|", ["AND"]],
    ["SELECT temp FROM STREAM() GROUP b|", ["BY"]],
    ["SELECT AVG(temp) AS mean FROM STREAM() GROUP BY origin ORDER BY me|", ["mean"]],
    ["SELECT temp FROM STREAM() WINDOWING t|", ["TUMBLING"]],
    ["SELECT temp FROM STREAM() WINDOWING TUMBLING(2, r|", ["RECORD"]],
    ["SELECT temp FROM STREAM() WINDOWING TUMBLING(2, w|", ["WEEK"]],
    ["SELECT temp FROM STREAM() WINDOWING s|", ["SESSION"]],
    ["SELECT temp FROM STREAM() WINDOWING SESSION(2, t|", ["TIME"]],
    ["SELECT temp FROM STREAM() WINDOWING SESSION(2, TIME) o|", ["ON"]],
    ["SELECT temp FROM STREAM() WINDOWING SESSION(2, TIME) ON or|", ["origin"]],
    ["SELECT temp FROM STREAM() WINDOWING SESSION(2, TIME) ON origin d|", ["DELAY"]],
    ["SELECT temp FROM STREAM() WINDOWING SESSION(2, TIME) ON origin DELAY 5 l|", ["LIMIT"]],
    ["SELECT $pa|", ["$partition"]],
  ])("at %s is %j", (text, expected) => {
    expect(at(text)).toEqual(expected);
  });

  it("proposes no aggregate where there can be none", () => {
    expect(at("SELECT * FROM STREAM() WHERE cou|")).toBeNull();
    expect(at("SELECT * FROM STREAM() WHERE ab|")).toEqual(["ABS("]);
  });

  it.each(["SELECT 'te|", "SELECT temp AS te|", "SELECT 1e|", "SELECT |", "SELECT * FROM|", "LIMIT 1|"])(
    "has nothing to say at %s",
    (text) => {
      expect(at(text)).toBeNull();
    },
  );

  it("proposes everything that may follow when asked", () => {
    expect(at("SELECT * FROM STREAM() |", true)).toEqual(["WHERE", "GROUP BY", "ORDER BY", "WINDOWING", "LIMIT"]);
    expect(at("SELECT |", true)?.slice(0, 3)).toEqual(["temp", "temp_max", "origin"]);
  });

  it("replaces the whole word that the caret stands in", () => {
    expect(complete("SELECT temperature FROM", 9, KNOWN, false)).toMatchObject({ from: 7, to: 18 });
  });
});
