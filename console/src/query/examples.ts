/** Questions to begin with, made from what the records that are there hold. */
import type { SchemaField } from "../api/schema";

export interface Example {
  title: string;
  text: string;
}

/** What is known of the records that examples are about. */
export interface Subject {
  /** The topic; null for what `STREAM()` is. */
  topic: string | null;
  fields: readonly SchemaField[];
}

/** What stands in the editor of a new visitor; good for any data. */
export const FIRST_EXAMPLE: Example = {
  title: "Everything that arrives",
  text: "SELECT *\nFROM STREAM(60000, TIME)\nLIMIT 500",
};

/** Columns that an example names. */
const COLUMNS_MAX = 4;
/** A field that fewer records have makes examples without rows. */
const PRESENT_MIN = 0.5;
/** More digits than that a limit never needs. */
const DIGITS_MAX = 15;
const TEN_S = 10_000;
const TEN_MIN = 600_000;

/** Examples about `subject`, and about one more topic if there is one. */
export function examplesOf(subject: Subject, otherTopic: string | null = null): Example[] {
  const known = new KnownFields(subject);
  const other = otherTopic === null ? [] : [wholeTopic(otherTopic)];
  const first = subject.topic === null ? FIRST_EXAMPLE : wholeTopic(subject.topic);
  return [first, ...known.examples(), ...other];
}

function wholeTopic(topic: string): Example {
  return { title: `Everything in ${topic}`, text: `SELECT *\nFROM ${quoted(topic)}\nLIMIT 500` };
}

class KnownFields {
  readonly #topic: string | null;
  readonly #measures: readonly SchemaField[];
  readonly #texts: readonly SchemaField[];
  /** What tells records of different senders apart. */
  readonly #key: { path: string; name: string; noun: string };

  constructor({ topic, fields }: Subject) {
    const payload = fields.filter(({ path, present }) => !path.startsWith("$") && present >= PRESENT_MIN);
    this.#topic = topic;
    this.#measures = payload.filter((field) => isOf(field, ["LONG", "DOUBLE"]) && !isTime(field));
    this.#texts = payload.filter((field) => isOf(field, ["STRING"]) && !isTime(field));
    const [text] = this.#texts;
    this.#key =
      topic === null || text === undefined
        ? { path: "$key", name: topic === null ? "device" : "key", noun: topic === null ? "device" : "key" }
        : { path: text.path, name: "", noun: text.path };
  }

  examples(): Example[] {
    const [measure] = this.#measures;
    return [
      ...this.#columns(),
      ...(measure === undefined ? [] : this.#ofMeasure(measure)),
      this.#count(),
      {
        title: `Which ${this.#key.noun} comes most often`,
        text: `SELECT TOP(10, ${this.#key.path})\n${this.#stream(TEN_S)}${this.#windows(2_000)}`,
      },
    ];
  }

  #columns(): Example[] {
    const columns = [...this.#measures, ...this.#texts].map(({ path }) => path).slice(0, COLUMNS_MAX);
    if (columns.length === 0) return [];
    const key = this.#topic === null ? [this.#named()] : [];
    return [{ title: "Some columns", text: `SELECT ${[...key, ...columns].join(", ")}\n${this.#stream(TEN_MIN)}` }];
  }

  #ofMeasure(measure: SchemaField): Example[] {
    const { path } = measure;
    const { path: key, noun } = this.#key;
    const limit = middle(measure.examples);
    return [
      {
        title: `Where ${path} is above ${limit}`,
        text: `SELECT ${this.#named()}, ${path}\n${this.#stream(TEN_MIN)}\nWHERE ${path} > ${limit}`,
      },
      {
        title: `Mean ${path} of each ${noun}`,
        text:
          `SELECT ${this.#named()}, COUNT(*) AS n, AVG(${path}) AS mean, MAX(${path}) AS highest\n` +
          `${this.#stream(TEN_MIN)}\nGROUP BY ${key}\nWINDOWING TUMBLING(2000, TIME)`,
      },
      {
        title: `How ${path} is spread`,
        text: `SELECT FREQ(${path}, LINEAR, 10)\n${this.#stream(TEN_S)}${this.#windows(5_000)}`,
      },
    ];
  }

  #count(): Example {
    return {
      title: "How many arrive in two seconds",
      text: `SELECT COUNT(*) AS records\n${this.#stream(TEN_MIN)}\nWINDOWING TUMBLING(2000, TIME)`,
    };
  }

  #named(): string {
    const { path, name } = this.#key;
    return name === "" ? path : `${path} AS ${name}`;
  }

  #stream(duration_ms: number): string {
    return this.#topic === null ? `FROM STREAM(${duration_ms}, TIME)` : `FROM ${quoted(this.#topic)}`;
  }

  /** A topic by its name has no duration: its results come by windows. */
  #windows(every_ms: number): string {
    return this.#topic === null ? "" : `\nWINDOWING TUMBLING(${every_ms}, TIME)`;
  }
}

function isOf({ types }: SchemaField, wanted: readonly string[]): boolean {
  const names = [...types.keys()].filter((name) => name !== "NULL");
  return names.length > 0 && names.every((name) => wanted.includes(name));
}

/** Moments are neither measured nor counted by. */
function isTime({ path, examples }: SchemaField): boolean {
  if (/(?:^|[._])(?:time|timestamp|date|ts)$|(?:_at|time|date|Time|Date)$/.test(path)) return true;
  return examples.length > 0 && examples.every((value) => typeof value === "string" && /^\d{4}-\d\d-\d\d/.test(value));
}

/** A number amid the values that were seen, as short as it can be. */
function middle(values: readonly unknown[]): number {
  const numbers = values.filter((value) => typeof value === "number").sort((a, b) => a - b);
  const [low, high] = [numbers[0] ?? 0, numbers.at(-1) ?? 0];
  const value = (low + high) / 2;
  for (let digits = 2; digits < DIGITS_MAX; digits += 1) {
    const short = Number(value.toPrecision(digits));
    if (low === high || (low <= short && short < high)) return short;
  }
  return value;
}

function quoted(topic: string): string {
  return `"${topic.replaceAll('"', '""')}"`;
}
