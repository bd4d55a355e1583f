import { describe, expect, it } from "vitest";
import { colouredLines } from "./colours";

describe("the words of a document", () => {
  it.each<[string, string[]]>([
    ["name: warm # why", ["yaml-key name", "comment # why"]],
    [
      '  a: { type: map, where: "a # b: c", n: 5 }',
      ["yaml-key a", "yaml-key type", "yaml-key where", 'string "a # b: c"', "yaml-key n", "number 5"],
    ],
    ["- { $key: d1, stop: true }", ["yaml-key $key", "yaml-key stop", "keyword true"]],
    ["timeout: 30s", ["yaml-key timeout", "number 30s"]],
    ["# name: warm", ["comment # name: warm"]],
    ["topic: a-1#2", ["yaml-key topic"]],
    ["it's: 'so'", ["string 'so'"]],
  ])("are coloured in %j", (line, expected) => {
    const [words = []] = colouredLines(line);
    expect(words.map(({ text }) => text).join("")).toBe(line);
    expect(words.filter(({ kind }) => kind !== "plain").map(({ kind, text }) => `${kind} ${text}`)).toEqual(expected);
  });
});
