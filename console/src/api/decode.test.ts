import { describe, expect, it } from "vitest";
import { array, DecodeError, dictionary, nullable, number, object, string, withDefault } from "./decode";

describe("a decoder", () => {
  const point = object({ name: string, at: array(number), note: nullable(string), weight: withDefault(number, 1) });

  it("keeps known members and ignores unknown ones", () => {
    const value = { name: "a", at: [1, 2], note: null, weight: 3, newer: true };
    expect(point(value, "answer")).toEqual({ name: "a", at: [1, 2], note: null, weight: 3 });
  });

  it("fills in members that may be missing", () => {
    expect(point({ name: "a", at: [] }, "answer")).toEqual({ name: "a", at: [], note: null, weight: 1 });
  });

  it.each([
    [{ name: 1, at: [] }, "a number at answer.name where a string belongs"],
    [{ name: "a" }, "nothing at answer.at where an array belongs"],
    [{ name: "a", at: [1, "2"] }, "a string at answer.at[1] where a number belongs"],
    [[], "an array at answer where an object belongs"],
    [null, "null at answer where an object belongs"],
  ])("names the place of what is wrong in %j", (value, message) => {
    expect(() => point(value, "answer")).toThrow(DecodeError);
    expect(() => point(value, "answer")).toThrow(message);
  });

  it("keeps members whose names are data, in their order", () => {
    expect([...dictionary(number)({ b: 1, a: 2 }, "answer")]).toEqual([
      ["b", 1],
      ["a", 2],
    ]);
  });
});
