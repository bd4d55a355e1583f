import { describe, expect, it } from "vitest";
import type { RateSample } from "../api/stats";
import { History, HISTORY_S } from "./history";

function sample(uptime_s: number): RateSample {
  return {
    uptime_s,
    accepted_rate_per_s: uptime_s,
    append_rate_per_s: 0,
    updates_rate_per_s: 0,
    accept_p99_ms: null,
    sync_p99_ms: null,
    update_p99_ms: null,
  };
}

/** An answer with the samples from one second of the server's life to another, which is when it is given. */
function answer(from: number, to: number, started_at = "monday"): Parameters<History["with"]>[0] {
  const seconds = Array.from({ length: to - from + 1 }, (_, index) => from + index);
  return { started_at, uptime_s: to, history: seconds.map(sample) };
}

/** On this machine's clock. */
const START = 1_000_000;

describe("a history", () => {
  it("is filled with the server's five minutes by its first answer", () => {
    const history = History.empty.with(answer(701, 1_000), START + 1_000);
    expect(history.times_s).toHaveLength(HISTORY_S);
    expect(history.times_s.at(0)).toBe(START + 701);
    expect(history.column("accepted").at(-1)).toBe(1_000);
    expect(history.column("sync_p99")).toHaveLength(HISTORY_S);
  });

  it("keeps five minutes and no more", () => {
    let history = History.empty;
    for (let at = 1; at <= 2 * HISTORY_S; at += 1) history = history.with(answer(at, at), START + at);
    expect(history.times_s).toHaveLength(HISTORY_S);
    expect(history.times_s.at(0)).toBe(START + HISTORY_S + 1);
  });

  it("takes each second once, however often and however late it is told", () => {
    const history = History.empty.with(answer(1, 10), START + 10).with(answer(8, 12), START + 13);
    expect(history.column("accepted")).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    expect(history.times_s.at(-1)).toBe(START + 12);
    expect(history.with(answer(11, 12), START + 13)).toBe(history);
  });

  it("asks for what is missing, and for all of it at first", () => {
    expect(History.empty.missing_s(START)).toBe(HISTORY_S);
    const history = History.empty.with(answer(1, 10), START + 10);
    expect(history.missing_s(START + 11)).toBe(3);
    // A tab that slept for an hour, and one whose clock was set back.
    expect(history.missing_s(START + 3_600)).toBe(HISTORY_S);
    expect(history.missing_s(START)).toBe(2);
  });

  it("draws silence as a gap, not as a line", () => {
    const history = History.empty.with(answer(1, 1), START + 1).with(answer(11, 11), START + 11);
    expect(history.times_s).toEqual([START + 1, START + 2, START + 11]);
    expect(history.column("accepted")).toEqual([1, null, 11]);
  });

  it("goes on after a restart of the server, whose seconds begin anew", () => {
    const history = History.empty.with(answer(1, 10), START + 10).with(answer(1, 2, "tuesday"), START + 40);
    expect(history.times_s.slice(-3)).toEqual([START + 11, START + 39, START + 40]);
  });
});
