import { describe, expect, it } from "vitest";
import { graphOf } from "./graph";
import { STARTER } from "./starter";
import { readTree } from "./tree";

/** Boxes as `role name type`, and edges as `from,to`. */
function drawn(...lines: string[]): { boxes: string[]; edges: string[] } {
  const { nodes, edges } = graphOf(readTree(lines.join("\n")));
  return {
    boxes: nodes.map(({ role, name, type }) => `${role} ${name} ${type}`),
    edges: edges.map(({ from, to }) => `${from},${to}`),
  };
}

describe("the graph of a document", () => {
  it("has the nodes and inputs of the example", () => {
    expect(drawn(STARTER)).toEqual({
      boxes: ["source readings stream", "transform known filter", "transform celsius map", "sink warm stream"],
      edges: ["readings,known", "known,celsius", "celsius,warm"],
    });
  });

  it.each([
    ["edges: [[a, c], [b, c], [b, d]]", ["a,c", "b,c"]],
    ["edges: { a: c, b: [c, d] }", ["a,c", "b,c"]],
    ["edges: [[a], a, [a, a]]", []],
  ])("has the edges of %j that lead from node to node", (edges, expected) => {
    expect(drawn("sources: { a: {}, b: {} }", "sinks: { c: {} }", edges).edges).toEqual(expected);
  });

  it("draws a bundle as one box", () => {
    const lines = [
      "sources: { a: {} }",
      "use:",
      "  clean: { bundle: cleaning, inputs: a }",
      "sinks:",
      "  c: { inputs: [clean.out, a.b] }",
    ];
    expect(drawn(...lines)).toEqual({
      boxes: ["source a ", "sink c ", "transform clean bundle cleaning"],
      edges: ["clean,c", "a,clean"],
    });
  });

  it("is there while the document is half written", () => {
    const lines = [
      "sources:",
      "  a:",
      "    ty",
      "    inputs",
      "sinks:",
      "  b: { inputs: [a",
      "  c: { inputs: a, type: ",
      "na",
    ];
    expect(drawn(...lines).edges).toEqual(["a,b", "a,c"]);
    expect(drawn("").boxes).toEqual([]);
  });
});
