/** Options for the word at the caret of a job's document: keys and values of its schema, nodes and topics. */
import { type Json, listOf, memberOf } from "../api/decode";
import { type Completion, type Option, OPTIONS_MAX } from "../completion";
import { type DocumentNode, nodesOf } from "./nodes";
import { type Mapping, readTree, textOf, type Tree, valueOf } from "./tree";

export interface JobWords {
  /** The JSON Schema of documents; null while it is not known. */
  schema: Json | null;
  topics: readonly string[];
}

const WORD_BEFORE = /(?:[A-Za-z_$][\w.$-]*)?$/;
const WORD_AFTER = /^[\w.$-]*/;
/** A character of nobody's document, which stands for the word at the caret. */
const CARET = "\uE000";

/** A step from a value to one inside: by a key of a mapping, or, with null, to an item of a list. */
interface Step {
  of: Mapping | null;
  key: string | null;
}

interface Place {
  steps: readonly Step[];
  /** The mapping whose key is written; null if it is a value, or may become either. */
  keyOf: Mapping | null;
}

export function completeJob(text: string, caret: number, words: JobWords, asked: boolean): Completion | null {
  const word = WORD_BEFORE.exec(text.slice(0, caret))?.[0] ?? "";
  if (words.schema === null || (word === "" && !asked)) return null;
  const from = caret - word.length;
  const to = caret + (WORD_AFTER.exec(text.slice(caret))?.[0].length ?? 0);
  const document = readTree(text.slice(0, from) + CARET + text.slice(to));
  const place = placeIn(document, []);
  if (place === null) return null;
  // Behind the colon of a key, in its line, there is no place for another key.
  const beginsLine = /^[ -]*$/.test(text.slice(text.lastIndexOf("\n", from - 1) + 1, from));
  const isKey = place.keyOf !== null || beginsLine;
  const all = [
    ...(place.keyOf === null ? valuesAt(place, document, words) : []),
    ...(isKey ? keysAt(place, document, words.schema) : []),
  ];
  const wanted = word.toLowerCase();
  const matching = all.filter(({ text: option }) => option !== CARET && option.toLowerCase().startsWith(wanted));
  const isWhole = matching.length === 1 && matching[0]?.text === text.slice(from, to);
  if (matching.length === 0 || isWhole) return null;
  // A tail would come before the quotation mark.
  const isQuoted = text[to] === '"' || text[to] === "'";
  const options = distinct(matching).map((option) => (isQuoted ? { ...option, tail: "" } : option));
  return { from, to, options: options.slice(0, OPTIONS_MAX) };
}

function distinct(options: readonly Option[]): Option[] {
  return options.filter(({ text }, index) => options.findIndex((other) => other.text === text) === index);
}

function placeIn(tree: Tree | null, steps: readonly Step[]): Place | null {
  if (tree === null) return null;
  if (tree.kind === "scalar") return tree.text === CARET ? { steps, keyOf: null } : null;
  if (tree.kind === "list") {
    return firstOf(tree.items, (item) => placeIn(item, [...steps, { of: null, key: null }]));
  }
  if (tree.entries.some(({ key }) => key === CARET)) return { steps, keyOf: tree };
  return firstOf(tree.entries, ({ key, value }) => placeIn(value, [...steps, { of: tree, key }]));
}

function firstOf<T>(all: readonly T[], find: (one: T) => Place | null): Place | null {
  for (const one of all) {
    const found = find(one);
    if (found !== null) return found;
  }
  return null;
}

/** The schemas that hold for a value; several where there are alternatives. */
function schemasAt(steps: readonly Step[], root: Json): Json[] {
  return steps.reduce<Json[]>(
    (before, step) => before.flatMap((schema) => inside(schema, step, root)),
    expanded(root, root),
  );
}

function keysAt(place: Place, document: Tree | null, root: Json): Option[] {
  const there = new Set(place.keyOf?.entries.map(({ key }) => key));
  const keys = schemasAt(place.steps, root).flatMap((schema) => keysOf(schema, root));
  return [...keys, ...namedKeys(place.steps, document)].filter(({ text }) => !there.has(text));
}

function valuesAt({ steps }: Place, document: Tree | null, { schema, topics }: JobWords): Option[] {
  if (schema === null) return [];
  const schemas = schemasAt(steps, schema);
  const types = steps.at(-1)?.key === "type" ? schemasAt(steps.slice(0, -1), schema).flatMap(typesOf) : [];
  return [...namedValues(steps, document, topics), ...types, ...schemas.flatMap(valuesOf)];
}

/** The schemas that a schema stands for: behind references and alternatives. */
function expanded(schema: Json | undefined, root: Json): Json[] {
  if (schema === undefined) return [];
  const reference = memberOf(schema, "$ref");
  if (typeof reference === "string") {
    const [, ...path] = reference.split("/");
    return expanded(path.reduce<Json | undefined>(memberOf, root), root);
  }
  const either = memberOf(schema, "anyOf");
  return either === undefined ? [schema] : listOf(either).flatMap((one) => expanded(one, root));
}

function inside(schema: Json, { of, key }: Step, root: Json): Json[] {
  if (key === null) return expanded(memberOf(schema, "items"), root);
  const type = textOf(valueOf(of, "type"));
  const ofType = rulesOf(schema).filter((rule) => rule.type === type);
  const named = [schema, ...ofType.map(({ then }) => then)].flatMap((one) =>
    expanded(memberOf(memberOf(one, "properties"), key), root),
  );
  return named.length > 0 ? named : expanded(memberOf(schema, "additionalProperties"), root);
}

/** The schemas that hold for nodes of a type alone. */
function rulesOf(schema: Json): { type: Json | undefined; then: Json | undefined }[] {
  return listOf(memberOf(schema, "allOf")).map((rule) => ({
    type: memberOf(memberOf(memberOf(memberOf(rule, "if"), "properties"), "type"), "const"),
    then: memberOf(rule, "then"),
  }));
}

function keysOf(schema: Json, root: Json): Option[] {
  return Object.entries(memberOf(schema, "properties") ?? {}).map(([name, property]: [string, Json]) => {
    // A value that takes lines of its own begins in the next one.
    const forms = expanded(property, root).map((one) => memberOf(one, "type"));
    const isLarge = forms.every((form) => form === "object" || form === "array");
    return { kind: "key", text: name, detail: descriptionOf(property), tail: isLarge ? ":" : ": " };
  });
}

/** The types of a node, each with what it does. */
function typesOf(node: Json): Option[] {
  return rulesOf(node).map(({ type, then }) => ({
    kind: "value",
    text: scalarText(type ?? null),
    detail: descriptionOf(memberOf(memberOf(then, "properties"), "config")),
  }));
}

function valuesOf(schema: Json): Option[] {
  const fallback = memberOf(schema, "default");
  const isBoolean = memberOf(schema, "type") === "boolean";
  const named = isBoolean ? [true, false] : listOf(memberOf(schema, "enum"));
  const known = typeof fallback === "string" || typeof fallback === "number" ? [fallback] : [];
  return (named.length > 0 ? named : known).map((value) => {
    return { kind: "value", text: scalarText(value), detail: value === fallback ? "the default" : "" };
  });
}

/** Names of nodes and topics, where a value is one. */
function namedValues(steps: readonly Step[], document: Tree | null, topics: readonly string[]): Option[] {
  const keys = keysOn(steps);
  const [section, own] = keys;
  const last = keys.at(-1);
  if (last === "topic" && keys.at(-2) === "config") {
    return topics.map((text) => ({ kind: "stream", text, detail: "topic" }));
  }
  if (last === "inputs") return nodes(document, "source", "transform").filter(({ text }) => text !== own);
  if (section === "edges") return nodes(document);
  if (section === "hooks" && last === "task") return [...nodes(document), ...words("all")];
  if (section !== "routes") return [];
  if (last === "from") return [...nodes(document), ...words("all")];
  if (last === "to") return [...nodes(document, "transform", "sink"), ...words("all", "none")];
  return last === "predicate_errors_to" ? nodes(document, "transform", "sink") : [];
}

/** Names of nodes, where a key is one. */
function namedKeys(steps: readonly Step[], document: Tree | null): Option[] {
  const [section, own] = keysOn(steps);
  const isByNode = section === "edges" || (section === "tests" && /^(?:inject|expect|params)$/.test(own ?? ""));
  return isByNode && keysOn(steps).length <= 2 ? nodes(document).map((node) => ({ ...node, tail: ": " })) : [];
}

function keysOn(steps: readonly Step[]): string[] {
  return steps.flatMap(({ key }) => (key === null ? [] : [key]));
}

/** The nodes of the document with these roles; all of them without any. */
function nodes(document: Tree | null, ...roles: DocumentNode["role"][]): Option[] {
  const named = nodesOf(document).filter(({ role }) => roles.length === 0 || roles.includes(role));
  return named.map(({ name, role }) => ({ kind: "node", text: name, detail: role }));
}

function words(...texts: string[]): Option[] {
  return texts.map((text) => ({ kind: "value", text, detail: "" }));
}

function scalarText(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function descriptionOf(schema: Json | undefined): string {
  const text = memberOf(schema, "description");
  return typeof text === "string" ? text.replaceAll("`", "") : "";
}
