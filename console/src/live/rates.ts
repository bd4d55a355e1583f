/** Records per second of topics, from how far their tails have moved between two answers. */
import { useEffect, useState } from "preact/hooks";

/** What of a topic tells its rate. */
export interface Tails {
  name: string;
  partitions: readonly { tail: number }[];
}

interface Seen {
  at_ms: number;
  topics: readonly Tails[];
  rates: ReadonlyMap<string, number>;
}

/** Rates between the last two values of `topics`; none before the second. */
export function useRates(topics: readonly Tails[]): ReadonlyMap<string, number> {
  const [seen, setSeen] = useState<Seen>({ at_ms: 0, topics: [], rates: new Map() });
  useEffect(() => {
    setSeen((before) => {
      const at_ms = performance.now();
      return { at_ms, topics, rates: ratesBetween(before.topics, topics, (at_ms - before.at_ms) / 1000) };
    });
  }, [topics]);
  return seen.rates;
}

export function ratesBetween(
  before: readonly Tails[],
  after: readonly Tails[],
  elapsed_s: number,
): Map<string, number> {
  const tails = (topics: readonly Tails[]): Map<string, number> =>
    new Map(topics.map(({ name, partitions }) => [name, partitions.reduce((sum, { tail }) => sum + tail, 0)]));
  const earlier = tails(before);
  const rates = new Map<string, number>();
  for (const [name, tail] of tails(after)) {
    const from = earlier.get(name);
    if (from !== undefined && elapsed_s > 0) rates.set(name, Math.max(0, tail - from) / elapsed_s);
  }
  return rates;
}
