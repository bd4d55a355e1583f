import { describe, expect, it } from "vitest";
import type { Stats } from "../api/stats";
import { History, HISTORY_S } from "./history";

function sample(accepted: number): Stats {
  return {
    version: "0",
    uptime_s: 0,
    started_at: "",
    log: { append_rate_per_s: 0, bytes_per_s: 0, sync_p50_ms: null, sync_p99_ms: null, topics: [] },
    connect: {
      accepted_total: 0,
      rejected_total: 0,
      accepted_rate_per_s: accepted,
      latency_ms: { p50: null, p99: null, max: null },
    },
    context: {
      entities: 0,
      updates_total: 0,
      updates_rate_per_s: 0,
      latency_ms: { p50: null, p99: null, max: null },
    },
    query: { live: 0, records_seen_total: 0, matched_total: 0 },
    memory: { used_bytes: 0, budget_bytes: 0 },
    rss_bytes: 0,
    listeners: new Map(),
  };
}

describe("a history", () => {
  it("keeps five minutes and no more", () => {
    let history = History.empty;
    for (let at = 0; at < 2 * HISTORY_S; at += 1) history = history.with(sample(at), at);
    expect(history.times_s).toHaveLength(HISTORY_S);
    expect(history.times_s.at(0)).toBe(HISTORY_S);
    expect(history.column("accepted")).toEqual(history.times_s);
    expect(history.column("sync_p99")).toHaveLength(HISTORY_S);
  });

  it("draws silence as a gap, not as a line", () => {
    const history = History.empty.with(sample(1), 10).with(sample(2), 20);
    expect(history.times_s).toEqual([10, 11, 20]);
    expect(history.column("accepted")).toEqual([1, null, 2]);
  });

  it("takes one sample for each second", () => {
    const history = History.empty.with(sample(1), 10);
    expect(history.with(sample(2), 10)).toBe(history);
  });

  it("begins anew after a silence longer than its span", () => {
    const history = History.empty.with(sample(1), 10).with(sample(2), 10 + 2 * HISTORY_S);
    expect(history.times_s.at(-1)).toBe(10 + 2 * HISTORY_S);
    expect(history.column("accepted").filter((value) => value !== null)).toEqual([2]);
  });
});
