/** The nodes and edges that the text of a document names, as far as it can be understood. */
import type { GraphNode } from "../api/jobs";
import { entriesOf, type Tree, valueOf } from "./tree";

const SECTIONS = [
  { section: "sources", role: "source" },
  { section: "transforms", role: "transform" },
  { section: "sinks", role: "sink" },
] as const;

export interface DocumentNode {
  name: string;
  role: GraphNode["role"];
  value: Tree | null;
}

export function nodesOf(document: Tree | null): DocumentNode[] {
  return SECTIONS.flatMap(({ section, role }) =>
    entriesOf(valueOf(document, section)).map(({ key, value }) => ({ name: key, role, value })),
  );
}
