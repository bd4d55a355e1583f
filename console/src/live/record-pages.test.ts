import { describe, expect, it } from "vitest";
import type { RecordsAnswer, RecordsRequest, TopicRecord } from "../api/records";
import { positionOf, positionText } from "../api/records";
import { type Bounds, pageBefore, pageFrom, type PageSource } from "./record-pages";

/** Offset → second, of each partition; offsets have gaps. */
type Log = ReadonlyMap<number, ReadonlyMap<number, number>>;

function recordOf(partition: number, offset: number, second: number): TopicRecord {
  const timestamp = new Date(second * 1000).toISOString();
  return {
    partition,
    offset,
    timestamp,
    key: { kind: "none" },
    value: { kind: "text", text: `${second}` },
    headers: [],
  };
}

/** A server with this log that answers `most` records a page; the text of a filter must be the end of the value. */
function serverOf(log: Log, most: number): PageSource & { requests: number } {
  const source = {
    topic: "t",
    filter: { key: "", text: "" },
    requests: 0,
    fetch: ({ partition = 0, from, until, limit, filter }: RecordsRequest): Promise<RecordsAnswer> => {
      source.requests += 1;
      const all = [...(log.get(partition) ?? [])].map(([offset, second]) => recordOf(partition, offset, second));
      const place = (text: string): number =>
        text.includes("T")
          ? (all.find(({ timestamp }) => timestamp >= text)?.offset ?? endOf(log, partition))
          : (positionOf(text).get(partition) ?? 0);
      const [low, high] = [place(from), until === undefined ? endOf(log, partition) : place(until)];
      const wanted = all.filter(
        ({ offset, value }) =>
          offset >= low && offset < high && (value.kind === "text" ? value.text.endsWith(filter.text) : false),
      );
      const records = wanted.slice(0, Math.min(limit, most));
      const last = records.at(-1);
      const next = records.length < wanted.length && last !== undefined ? last.offset + 1 : Math.max(low, high);
      return Promise.resolve({ records, next: new Map([[partition, next]]) });
    },
  };
  return source;
}

function endOf(log: Log, partition: number): number {
  return Math.max(0, ...[...(log.get(partition) ?? [])].map(([offset]) => offset + 1));
}

function boundsOf(log: Log): Bounds[] {
  return [...log.keys()].map((partition) => ({ partition, first: 0, stable: endOf(log, partition) }));
}

const seconds = (records: readonly TopicRecord[]): number[] => records.map((r) => Date.parse(r.timestamp) / 1000);
const ends = (log: Log) => new Map(boundsOf(log).map(({ partition, stable }) => [partition, stable]));

/** Twenty records over three partitions, one of them empty, with a gap of a million offsets in another. */
const LOG: Log = new Map([
  [0, new Map(Array.from({ length: 10 }, (_, n) => [n < 5 ? n : n + 1_048_576, 2 * n]))],
  [1, new Map(Array.from({ length: 10 }, (_, n) => [n, 2 * n + 1]))],
  [2, new Map<number, number>()],
]);

describe("pages of records", () => {
  it.each([1_000, 2])("go back from the newest to the oldest, each record once, %i a request", async (most) => {
    const source = serverOf(LOG, most);
    let until: ReadonlyMap<number, number> = ends(LOG);
    const seen: number[][] = [];
    for (let page = 0; page < 10; page += 1) {
      const { records, before, hasOlder } = await pageBefore(source, boundsOf(LOG), until, 6);
      seen.push(seconds(records));
      until = before;
      if (!hasOlder) break;
    }
    expect(seen).toEqual([
      [14, 15, 16, 17, 18, 19],
      [8, 9, 10, 11, 12, 13],
      [2, 3, 4, 5, 6, 7],
      [0, 1],
    ]);
  });

  it("go forward from the oldest in the order of time, and back to the same page", async () => {
    const source = serverOf(LOG, 1_000);
    const first = await pageFrom(source, boundsOf(LOG), new Map(), 6);
    expect(seconds(first.records)).toEqual([0, 1, 2, 3, 4, 5]);
    expect([first.hasOlder, first.hasNewer]).toEqual([false, true]);
    const second = await pageFrom(source, boundsOf(LOG), first.after, 6);
    expect(seconds(second.records)).toEqual([6, 7, 8, 9, 10, 11]);
    const back = await pageBefore(source, boundsOf(LOG), second.before, 6);
    expect(seconds(back.records)).toEqual(seconds(first.records));
  });

  it("begin at a time, with what was before it on the page before", async () => {
    const source = serverOf(LOG, 1_000);
    const page = await pageFrom(source, boundsOf(LOG), new Date(9_000).toISOString(), 4);
    expect(seconds(page.records)).toEqual([9, 10, 11, 12]);
    expect(seconds((await pageBefore(source, boundsOf(LOG), page.before, 2)).records)).toEqual([7, 8]);
  });

  it("look on for what a filter lets through", async () => {
    const many: Log = new Map([[0, new Map(Array.from({ length: 5_000 }, (_, n) => [n, n]))]]);
    const source = { ...serverOf(many, 1_000), filter: { key: "", text: "999" } };
    const newest = await pageBefore(source, boundsOf(many), ends(many), 3);
    expect(seconds(newest.records)).toEqual([2_999, 3_999, 4_999]);
    const older = await pageBefore(source, boundsOf(many), newest.before, 3);
    expect([seconds(older.records), older.hasOlder]).toEqual([[999, 1_999], false]);
  });

  it("of a topic without records are empty and have no neighbours", async () => {
    const empty: Log = new Map([[0, new Map<number, number>()]]);
    const page = await pageBefore(serverOf(empty, 1), boundsOf(empty), new Map(), 5);
    expect([page.records, page.hasOlder, page.hasNewer, positionText(page.before)]).toEqual([[], false, false, "0:0"]);
  });
});
