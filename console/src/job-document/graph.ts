/**
 * The graph of a document that is being written: its nodes, the bundles that it uses, and its edges.
 *
 * A bundle is one box: its nodes are known to the server alone.
 */
import { type Json, listOf, memberOf } from "../api/decode";
import type { GraphEdge, GraphNode, JobGraph } from "../api/jobs";
import { nodesOf } from "./nodes";
import { entriesOf, jsonOf, type Tree, valueOf } from "./tree";

export function graphOf(document: Tree | null): JobGraph {
  const found = new Map<string, GraphNode>();
  for (const { name, role, value } of nodesOf(document)) {
    found.set(name, node(name, role, textOf(memberOf(jsonOf(value), "type")), value));
  }
  const bundles = entriesOf(valueOf(document, "use"));
  for (const { key, value } of bundles) {
    const bundle = textOf(memberOf(jsonOf(value), "bundle"));
    found.set(key, node(key, "transform", `bundle ${bundle}`.trimEnd(), value));
  }
  // A node of a bundle is called `bundle.node`.
  const bundled = new Set(bundles.map(({ key }) => key));
  const boxOf = (name: string): string => {
    const [bundle = ""] = name.split(".");
    return !found.has(name) && bundled.has(bundle) ? bundle : name;
  };
  const edges = [...pairs(document, [...found.keys()])]
    .map(([from, to]) => ({ from: boxOf(from), to: boxOf(to) }))
    .filter(({ from, to }) => found.has(from) && found.has(to) && from !== to);
  const distinct = new Map(edges.map((edge) => [`${edge.from},${edge.to}`, edge]));
  return { nodes: [...found.values()], edges: [...distinct.values()].map(edgeOf) };
}

function node(name: string, role: GraphNode["role"], type: string, value: Tree | null): GraphNode {
  const doc = textOf(memberOf(jsonOf(value), "doc"));
  return {
    name,
    type,
    role,
    doc: doc === "" ? null : doc,
    instances: 1,
    waits: null,
    keys: null,
    watermark: null,
    figures: null,
  };
}

function edgeOf({ from, to }: { from: string; to: string }): GraphEdge {
  return { from, to, exchange: "fused", records: null, rate: null };
}

/** The edges as they are written: under `inputs`, and under `edges` in both forms. */
function* pairs(document: Tree | null, names: readonly string[]): Generator<[string, string]> {
  const root = jsonOf(document);
  for (const section of ["transforms", "sinks", "use"]) {
    const members = memberOf(root, section);
    for (const name of names) {
      for (const from of textsOf(memberOf(memberOf(members, name), "inputs"))) yield [from, name];
    }
  }
  const edges = memberOf(root, "edges");
  if (Array.isArray(edges)) {
    for (const edge of edges) {
      const [from, to] = textsOf(edge);
      if (from !== undefined && to !== undefined) yield [from, to];
    }
  } else {
    for (const from of names) for (const to of textsOf(memberOf(edges, from))) yield [from, to];
  }
}

function textsOf(value: Json | undefined): string[] {
  return listOf(value).filter((one) => typeof one === "string");
}

function textOf(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}
