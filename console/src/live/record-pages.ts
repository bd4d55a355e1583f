/**
 * Pages of a topic's records over several partitions, forwards and backwards.
 *
 * The server reads a partition forwards only. A page backwards is read from windows of offsets that grow until they hold
 * enough records: offsets have gaps, and a filter passes records over. Partitions are merged by the time of their
 * records; within a partition the order of offsets stays.
 */
import type { Position, RecordFilter, RecordsAnswer, RecordsRequest, TopicRecord } from "../api/records";
import { positionText } from "../api/records";

/** Partitions that one page reads; of a topic with more, one is chosen. */
export const PARTITIONS_MAX = 32;
/** Requests that one page may take in a partition before it shows what it has. */
const STEPS_MAX = 16;
const WINDOW_MAX_OFFSETS = 1 << 18;
/** The largest page of the server. */
const PAGE_MAX_RECORDS = 1_000;

/** Where a partition begins and up to where it is read. */
export interface Bounds {
  partition: number;
  first: number;
  stable: number;
}

export interface RecordPage {
  /** In the order of time, the oldest first. */
  records: TopicRecord[];
  /** Where the page begins and ends in each partition. */
  before: Position;
  after: Position;
  /** Whether there may be records on either side. */
  hasOlder: boolean;
  hasNewer: boolean;
}

export interface PageSource {
  topic: string;
  filter: RecordFilter;
  fetch: (request: RecordsRequest) => Promise<RecordsAnswer>;
}

/** What was read of one partition: its records in order, and the offsets that they were looked for in. */
interface Part {
  bounds: Bounds;
  records: TopicRecord[];
  from: number;
  to: number;
}

/** The `limit` records that follow `from`: a position, or an ISO time. */
export async function pageFrom(
  source: PageSource,
  all: readonly Bounds[],
  from: Position | string,
  limit: number,
): Promise<RecordPage> {
  const parts = await Promise.all(all.map((bounds) => partFrom(source, bounds, from, limit)));
  const taken = merged(parts, limit, "oldest");
  return pageOf(parts, taken.records, (part, count) => {
    const next = part.records[count];
    return [part.from, next === undefined ? part.to : next.offset];
  });
}

/** The `limit` records before `until`. */
export async function pageBefore(
  source: PageSource,
  all: readonly Bounds[],
  until: Position,
  limit: number,
): Promise<RecordPage> {
  const parts = await Promise.all(all.map((bounds) => partBefore(source, bounds, until, limit)));
  const taken = merged(parts, limit, "newest");
  return pageOf(parts, taken.records, (part, count) => {
    const previous = part.records[part.records.length - 1 - count];
    return [previous === undefined ? part.from : previous.offset + 1, part.to];
  });
}

async function partFrom(source: PageSource, bounds: Bounds, from: Position | string, limit: number): Promise<Part> {
  const isTime = typeof from === "string";
  const start = isTime ? bounds.first : clamped(from.get(bounds.partition) ?? bounds.first, bounds);
  const part: Part = { bounds, records: [], from: start, to: start };
  let place = isTime ? from : at(bounds, start);
  for (let step = 0; step < STEPS_MAX && part.records.length < limit; step += 1) {
    const { records, next } = await read(source, bounds, place, limit - part.records.length);
    part.records.push(...records);
    const reached = next.get(bounds.partition) ?? part.to;
    // A time becomes an offset with the first answer.
    if (isTime && step === 0) part.from = records[0]?.offset ?? reached;
    const isAtEnd = place === at(bounds, reached);
    part.to = reached;
    place = at(bounds, reached);
    if (isAtEnd || reached >= bounds.stable) break;
  }
  return part;
}

async function partBefore(source: PageSource, bounds: Bounds, until: Position, limit: number): Promise<Part> {
  const end = clamped(until.get(bounds.partition) ?? bounds.stable, bounds);
  const part: Part = { bounds, records: [], from: end, to: end };
  let window = limit;
  for (let step = 0; step < STEPS_MAX && part.records.length < limit && part.from > bounds.first; step += 1) {
    const low = Math.max(bounds.first, part.from - window);
    part.records = [...(await readWindow(source, bounds, low, part.from)), ...part.records];
    part.from = low;
    window = Math.min(WINDOW_MAX_OFFSETS, 4 * window);
  }
  return part;
}

async function readWindow(source: PageSource, bounds: Bounds, low: number, high: number): Promise<TopicRecord[]> {
  const found: TopicRecord[] = [];
  let place = low;
  while (place < high) {
    const answer = await read(source, bounds, at(bounds, place), PAGE_MAX_RECORDS, at(bounds, high));
    found.push(...answer.records);
    const reached = answer.next.get(bounds.partition) ?? high;
    if (reached <= place) break;
    place = reached;
  }
  return found;
}

function read(
  source: PageSource,
  { partition }: Bounds,
  from: string,
  limit: number,
  until?: string,
): Promise<RecordsAnswer> {
  const { topic, filter, fetch } = source;
  return fetch({ topic, filter, partition, from, limit, ...(until === undefined ? {} : { until }) });
}

function at({ partition }: Bounds, offset: number): string {
  return positionText(new Map([[partition, offset]]));
}

function clamped(offset: number, { first, stable }: Bounds): number {
  return Math.min(Math.max(offset, first), stable);
}

/** Takes `limit` records from the heads of the parts, or from their ends, by time. */
function merged(parts: readonly Part[], limit: number, which: "oldest" | "newest"): { records: TopicRecord[] } {
  const counts = parts.map(() => 0);
  const head = (index: number): TopicRecord | undefined => {
    const { records } = parts[index] ?? { records: [] };
    const count = counts[index] ?? 0;
    return which === "oldest" ? records[count] : records[records.length - 1 - count];
  };
  const records: TopicRecord[] = [];
  while (records.length < limit) {
    let best = -1;
    for (let index = 0; index < parts.length; index += 1) {
      const [one, other] = [head(index), head(best)];
      if (one === undefined) continue;
      const isEarlier = other === undefined || one.timestamp < other.timestamp;
      const isLater = other === undefined || one.timestamp >= other.timestamp;
      if (which === "oldest" ? isEarlier : isLater) best = index;
    }
    const next = head(best);
    if (next === undefined) break;
    counts[best] = (counts[best] ?? 0) + 1;
    records.push(next);
  }
  return { records: which === "oldest" ? records : records.reverse() };
}

function pageOf(
  parts: readonly Part[],
  records: TopicRecord[],
  edges: (part: Part, count: number) => [before: number, after: number],
): RecordPage {
  const before = new Map<number, number>();
  const after = new Map<number, number>();
  for (const part of parts) {
    const { partition } = part.bounds;
    const [from, to] = edges(part, records.filter((record) => record.partition === partition).length);
    before.set(partition, from);
    after.set(partition, to);
  }
  const some = (edge: (bounds: Bounds) => boolean): boolean => parts.some(({ bounds }) => edge(bounds));
  return {
    records,
    before,
    after,
    hasOlder: some(({ partition, first }) => (before.get(partition) ?? first) > first),
    hasNewer: some(({ partition, stable }) => (after.get(partition) ?? stable) < stable),
  };
}
