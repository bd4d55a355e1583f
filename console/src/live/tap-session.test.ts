import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Json } from "../api/decode";
import type { TapEvent, TapRecord } from "../api/tap";
import { TAP_ROWS_MAX, TapSession, type TapSource } from "./tap-session";

let seen = 0;

function record(value: Json, more: Partial<TapRecord> = {}): TapEvent {
  seen += 1;
  const plain: TapRecord = {
    value,
    encoding: "json",
    key: "d1",
    headers: new Map(),
    truncated: false,
    seen,
    dropped: 0,
  };
  return { kind: "record", record: { ...plain, ...more } };
}

/** A server that sends `script` and closes; before each step `before` is called with its number. */
function sending(script: readonly (TapEvent | Error)[], before: (step: number) => void = () => undefined): TapSource {
  return async function* () {
    for (const [step, event] of script.entries()) {
      await Promise.resolve();
      before(step);
      if (event instanceof Error) throw event;
      yield event;
    }
  };
}

const OPEN: TapEvent = { kind: "open" };
const END: TapEvent = { kind: "end", reason: "stopped", message: null };

describe("a tap", () => {
  beforeEach(() => {
    seen = 0;
    vi.stubGlobal("window", globalThis);
    vi.stubGlobal("requestAnimationFrame", () => 1);
    vi.stubGlobal("cancelAnimationFrame", () => undefined);
    return () => {
      vi.unstubAllGlobals();
    };
  });

  it("gathers columns from its records, the key first and headers last", async () => {
    const headers = new Map([["a", "1"]]);
    const session = new TapSession(
      sending([OPEN, record({ n: 1 }, { headers }), record({ m: true, n: 2 }), END]),
      () => undefined,
    );
    await session.run();
    const { columns, rows, received, state } = session.snapshot();
    expect(columns).toEqual(["$key", "n", "m", "$headers"]);
    expect(rows.map((row) => row.record)).toEqual([
      { $key: "d1", n: 1, $headers: { a: "1" } },
      { $key: "d1", m: true, n: 2 },
    ]);
    expect([received, state]).toEqual([2, { kind: "ended", reason: "stopped", message: null }]);
  });

  it.each<[Json, Partial<TapRecord>, Json]>([
    [[1, 2], {}, [1, 2]],
    ["plain", { encoding: "text" }, "plain"],
    ["AAEC", { encoding: "base64" }, "base64: AAEC"],
    ["begin", { encoding: "text", truncated: true }, "begin… (only its beginning was sent)"],
    [null, {}, null],
  ])("shows %j, which is no object, whole", async (value, more, shown) => {
    const session = new TapSession(sending([OPEN, record(value, more)]), () => undefined);
    await session.run();
    expect(session.snapshot().rows[0]?.record).toEqual({ $key: "d1", record: shown });
  });

  it("keeps nothing while it is paused, counts what passes, and goes on", async () => {
    const session = new TapSession(
      sending([OPEN, record({ n: 1 }), record({ n: 2 }), record({ n: 3 }), record({ n: 4 }), END], (step) => {
        if (step === 2) session.pause();
        if (step === 4) {
          expect(session.snapshot().state).toEqual({ kind: "paused", missed: 2 });
          session.resume();
        }
      }),
      () => undefined,
    );
    await session.run();
    const { rows, seen } = session.snapshot();
    expect([rows.map((row) => row.record.n), seen]).toEqual([[1, 4], 4]);
  });

  it("keeps the newest records only", async () => {
    const many = Array.from({ length: TAP_ROWS_MAX + 5 }, (_, n) => record({ n }));
    const session = new TapSession(sending([OPEN, ...many]), () => undefined);
    await session.run();
    const { rows, received } = session.snapshot();
    expect([rows.length, rows.at(-1)?.record.n, received]).toEqual([TAP_ROWS_MAX, TAP_ROWS_MAX + 4, TAP_ROWS_MAX + 5]);
  });

  it("that breaks says why, and one that is closed says nothing", async () => {
    const broken = new TapSession(sending([OPEN, new Error("no connection")]), () => undefined);
    await broken.run();
    expect(broken.snapshot().state).toEqual({ kind: "broken", reason: "no connection" });
    const early = new TapSession(sending([OPEN]), () => undefined);
    await early.run();
    expect(early.snapshot().state.kind).toBe("broken");
    const closed = new TapSession(sending([OPEN, new Error("aborted")]), () => undefined);
    closed.close();
    await closed.run();
    expect(closed.snapshot().state.kind).toBe("live");
  });
});
