import { beforeEach, expect, it, vi } from "vitest";
import type { TailEvent, TopicRecord } from "../api/records";
import { RecordSession, TAIL_RECORDS_MAX, type TailSnapshot } from "./record-session";

beforeEach(() => {
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("requestAnimationFrame", () => 1);
  vi.stubGlobal("cancelAnimationFrame", () => undefined);
  return () => {
    vi.unstubAllGlobals();
  };
});

function recordOf(offset: number): TailEvent {
  const record: TopicRecord = {
    ...{ partition: 0, offset, timestamp: "2026-01-01T00:00:00.000Z", headers: [] },
    ...{ key: { kind: "none" }, value: { kind: "text", text: "x" } },
  };
  return { kind: "record", record };
}

/** A tail whose events the test gives one by one. */
class Source {
  #give: (event: TailEvent | null) => void = () => undefined;
  readonly #waiting: (TailEvent | null)[] = [];

  give(event: TailEvent | null): void {
    this.#waiting.push(event);
    this.#give(event);
  }

  readonly open = async function* (this: Source, signal: AbortSignal): AsyncGenerator<TailEvent> {
    yield { kind: "open" };
    for (;;) {
      signal.throwIfAborted();
      while (this.#waiting.length === 0) {
        await new Promise<void>((resolve, reject) => {
          this.#give = () => {
            resolve();
          };
          signal.addEventListener("abort", () => {
            reject(new Error("aborted"));
          });
        });
      }
      const event = this.#waiting.shift();
      if (event === null || event === undefined) return;
      yield event;
    }
  }.bind(this);
}

function sessionOf(...sources: Source[]): { session: RecordSession; latest: () => TailSnapshot; done: Promise<void> } {
  const session = new RecordSession(
    sources.map((source, index) => [`t${index}`, source.open] as const),
    () => undefined,
  );
  return { session, latest: () => session.snapshot(), done: session.run() };
}

it("keeps the newest records of all tails, with their topics, within a bound", async () => {
  const [one, other] = [new Source(), new Source()];
  const { session, latest } = sessionOf(one, other);
  for (let offset = 0; offset < TAIL_RECORDS_MAX; offset += 1) one.give(recordOf(offset));
  other.give(recordOf(7));
  await vi.waitFor(() => {
    expect(latest().received).toBe(TAIL_RECORDS_MAX + 1);
  });
  expect(latest().records).toHaveLength(TAIL_RECORDS_MAX);
  expect(new Set(latest().records.map(({ topic }) => topic))).toEqual(new Set(["t0", "t1"]));
  expect(latest().state).toEqual({ kind: "live" });
  session.close();
});

it("counts what passes while it is paused", async () => {
  const source = new Source();
  const { session, latest } = sessionOf(source);
  await vi.waitFor(() => {
    expect(latest().state.kind).toBe("live");
  });
  session.pause();
  source.give(recordOf(0));
  await vi.waitFor(() => {
    expect(latest().state).toEqual({ kind: "paused", missed: 1 });
  });
  session.resume();
  source.give(recordOf(1));
  await vi.waitFor(() => {
    expect(latest().records.map(({ offset }) => offset)).toEqual([1]);
  });
  session.close();
});

it.each([
  [{ kind: "failed", reason: "no memory" } as const, "no memory"],
  [null, "the server closed the tail"],
])("that breaks (%j) says so and ends the other tails", async (event, reason) => {
  const [one, other] = [new Source(), new Source()];
  const { latest, done } = sessionOf(one, other);
  one.give(event);
  await done;
  expect(latest().state).toEqual({ kind: "broken", reason });
});
