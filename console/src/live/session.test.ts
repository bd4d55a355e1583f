import { beforeEach, describe, expect, it, vi } from "vitest";
import { Refused } from "../api/http";
import type { QueryEvent } from "../api/queries";
import type { Summary, WindowMeta } from "../api/query-meta";
import { QuerySession, readingOrder, type Row, ROWS_MAX, type Server, type Snapshot } from "./session";

const SUMMARY: Summary = {
  cause: "size",
  stream: "telemetry.default",
  received_ms: 1,
  elapsed_us: 2,
  records_seen: 9,
  matched: 2,
  dropped: 0,
  evaluation_errors: 0,
  not_json: 0,
  skipped: 0,
  late: 0,
  clamped: [],
  errors: [],
  sketches: [],
  notes: [],
};
const META: QueryEvent = { kind: "meta", id: "q1", columns: [] };

/** A server whose answer is `script`; after it, the stream stays open until it is aborted or `released`. */
function answering(script: readonly (QueryEvent | Error)[], released?: Promise<QueryEvent>): Server {
  return {
    async *ask(_text, signal) {
      for (const step of script) {
        await Promise.resolve();
        if (step instanceof Error) throw step;
        yield step;
      }
      if (released === undefined) return;
      const aborted = new Promise<never>((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          reject(new DOMException("aborted", "AbortError"));
        });
      });
      yield await Promise.race([released, aborted]);
    },
    kill: () => Promise.resolve(),
  };
}

async function afterRun(server: Server): Promise<Snapshot> {
  const session = new QuerySession(server, "SELECT *", () => undefined);
  await session.run();
  return session.snapshot();
}

describe("a live query", () => {
  beforeEach(() => {
    vi.stubGlobal("window", globalThis);
    vi.stubGlobal("requestAnimationFrame", () => 1);
    vi.stubGlobal("cancelAnimationFrame", () => undefined);
    return () => {
      vi.unstubAllGlobals();
    };
  });

  it("that is closed paints nothing more, so that it does not cover the next one", async () => {
    const frames: (() => void)[] = [];
    vi.stubGlobal("requestAnimationFrame", (paint: () => void) => frames.push(paint));
    const painted: Snapshot[] = [];
    const session = new QuerySession(answering([META], new Promise(() => undefined)), "SELECT *", (snapshot) => {
      painted.push(snapshot);
    });
    const ran = session.run();
    await vi.waitFor(() => {
      expect(session.snapshot().state.kind).toBe("live");
    });
    frames.splice(0).forEach((paint) => {
      paint();
    });
    expect(painted.map((snapshot) => snapshot.state.kind)).toEqual(["live"]);
    session.close();
    await ran;
    frames.splice(0).forEach((paint) => {
      paint();
    });
    expect(painted).toHaveLength(1);
  });

  it("gathers its columns from its rows when it names none", async () => {
    const rows: QueryEvent = { kind: "rows", records: [{ a: 1 }, { b: 2, a: 3 }] };
    const snapshot = await afterRun(answering([META, rows, { kind: "end", summary: SUMMARY }]));
    expect(snapshot).toMatchObject({ id: "q1", columns: ["a", "b"], received: 2, dropped: 0 });
    expect(snapshot.state).toEqual({ kind: "ended", summary: SUMMARY });
    expect(snapshot.rows.map((row) => row.number)).toEqual([1, 2]);
  });

  it("shows a record that is no object whole", async () => {
    const snapshot = await afterRun(answering([META, { kind: "rows", records: ["on", [1]] }]));
    expect(snapshot.columns).toEqual(["record"]);
    expect(snapshot.rows.map((row) => row.record)).toEqual([{ record: "on" }, { record: [1] }]);
  });

  it("keeps to the columns it names", async () => {
    const rows: QueryEvent = { kind: "rows", records: [{ a: 1, b: 2 }] };
    expect((await afterRun(answering([{ ...META, columns: ["b"] }, rows]))).columns).toEqual(["b"]);
  });

  it("knows the window of each row and shows windows without rows", async () => {
    const window = (number: number, emit_time_ms: number): WindowMeta => {
      return {
        name: "tumbling time",
        number,
        size: 1000,
        emit_time_ms,
        start_ms: null,
        end_ms: null,
        records: 2,
        sketches: [],
        notes: [],
      };
    };
    const snapshot = await afterRun(
      answering([
        META,
        { kind: "window", records: [{ a: 1 }, { a: 2 }], window: window(1, 500) },
        { kind: "window", records: [], window: window(2, 1500) },
      ]),
    );
    expect(snapshot.rows.map((row) => [row.window, row.at_ms])).toEqual([
      [1, 500],
      [1, 500],
    ]);
    expect(snapshot.window?.number).toBe(2);
  });

  it("lets go of old rows and says how many", async () => {
    const records = Array.from({ length: ROWS_MAX + 5 }, (_, index) => ({ index }));
    const snapshot = await afterRun(answering([META, { kind: "rows", records }]));
    expect(snapshot.rows).toHaveLength(ROWS_MAX);
    expect(snapshot).toMatchObject({ received: ROWS_MAX + 5, dropped: 5 });
  });

  it("that the server refuses keeps the findings with the text they are about", async () => {
    const findings = [{ kind: "error" as const, message: "no", line: 1, column: 8, length: 1, suggestion: null }];
    const snapshot = await afterRun(answering([new Refused(422, "1 error", findings)]));
    expect(snapshot.state).toEqual({ kind: "refused", text: "SELECT *", reason: "1 error", findings });
  });

  it("whose stream closes without an end is broken, not ended", async () => {
    expect((await afterRun(answering([META]))).state.kind).toBe("broken");
  });

  it("that is stopped waits for its summary", async () => {
    let release: (event: QueryEvent) => void = () => undefined;
    const released = new Promise<QueryEvent>((resolve) => {
      release = resolve;
    });
    const server = { ...answering([META], released), kill: vi.fn(() => Promise.resolve()) };
    const session = new QuerySession(server, "SELECT *", () => undefined);
    const running = session.run();
    await vi.waitUntil(() => session.snapshot().state.kind === "live");
    session.stop();
    expect(session.snapshot().state.kind).toBe("stopping");
    expect(server.kill).toHaveBeenCalledWith("q1");
    release({ kind: "end", summary: { ...SUMMARY, cause: "killed" } });
    await running;
    expect(session.snapshot().state).toMatchObject({ kind: "ended", summary: { cause: "killed" } });
  });

  it("that cannot be stopped on the server is left", async () => {
    const server = {
      ...answering([META], new Promise<never>(() => undefined)),
      kill: () => Promise.reject(new Error("gone")),
    };
    const session = new QuerySession(server, "SELECT *", () => undefined);
    const running = session.run();
    await vi.waitUntil(() => session.snapshot().state.kind === "live");
    session.stop();
    await running;
    expect(session.snapshot().state).toEqual({ kind: "ended", summary: null });
  });
});

describe("rows in the order in which they are read", () => {
  const row = (number: number, window: number | null): Row => ({ number, at_ms: 0, window, record: {} });

  it("are newest first if they came one by one", () => {
    expect(readingOrder([row(1, null), row(2, null)], false).map(({ number }) => number)).toEqual([2, 1]);
  });

  it("keep the order of their result", () => {
    const windows = [row(1, 1), row(2, 1), row(3, 2), row(4, 2)];
    expect(readingOrder(windows, true).map(({ number }) => number)).toEqual([3, 4, 1, 2]);
    expect(readingOrder([row(1, null), row(2, null)], true).map(({ number }) => number)).toEqual([1, 2]);
  });
});
