import { describe, expect, it } from "vitest";
import { rawMembers, rawParts } from "./raw-json";

describe("JSON as it was written", () => {
  it.each([
    ["[]", []],
    ["{ }", []],
    ['[1, [2,3] ,{"a":[4]}]', ["1", "[2,3]", '{"a":[4]}']],
    ['["a,b", "]\\"["]', ['"a,b"', '"]\\"["']],
  ])("%s has its parts", (text, parts) => {
    expect(rawParts(text)).toEqual(parts);
  });

  it("keeps digits and order of a member", () => {
    const members = rawMembers('{"n:\\"x": 12345678901234567890, "value":{"b":1.50,"a":"}"}}');
    expect([...members]).toEqual([
      ['n:"x', "12345678901234567890"],
      ["value", '{"b":1.50,"a":"}"}'],
    ]);
  });
});
