/** What a page knows of something the server keeps: one of five states, and the hook that keeps it up to date. */
import { useEffect, useState } from "preact/hooks";
import { Refused, Unreachable } from "../api/http";

export type Remote<T> =
  | { kind: "loading" }
  | { kind: "live"; value: T; at: number }
  /** The server has stopped answering; `value` is the last that it said, at `since`. */
  | { kind: "stalled"; value: T; since: number; reason: string }
  /** The server answers, and will say the same again: the question itself is wrong, or not this caller's to ask. */
  | { kind: "refused"; reason: string; status: number }
  /** Nothing is known. */
  | { kind: "failed"; reason: string };

/** Refusals that the same question gets again: it is malformed, its caller is unknown, or may not ask it. */
const FINAL_STATUSES: readonly number[] = [400, 401, 403];

/** The state after one more attempt that failed: an unreachable server leaves what was known on the screen. */
export function afterFailure<T>(before: Remote<T>, cause: unknown): Remote<T> {
  const reason = cause instanceof Error ? cause.message : String(cause);
  if (cause instanceof Refused && FINAL_STATUSES.includes(cause.status)) {
    return { kind: "refused", reason, status: cause.status };
  }
  if (!(cause instanceof Unreachable)) return { kind: "failed", reason };
  if (before.kind === "live") return { kind: "stalled", value: before.value, since: before.at, reason };
  return before.kind === "stalled" ? { ...before, reason } : { kind: "failed", reason };
}

/** The latest value known, old or not. */
export function latest<T>(remote: Remote<T>): T | null {
  return remote.kind === "live" || remote.kind === "stalled" ? remote.value : null;
}

/**
 * Asks `fetcher` now and `period_ms` after each answer. Another `fetcher` is another question: what the old one said
 * stays on the screen until the new one has answered or failed, and is never shown as its last answer. One that is refused
 * for good is not asked again.
 */
export function usePolled<T>(fetcher: () => Promise<T>, period_ms: number): Remote<T> {
  const [remote, setRemote] = useState<Remote<T>>({ kind: "loading" });
  useEffect(() => {
    let stopped = false;
    let answered = false;
    let timer = 0;
    const poll = async (): Promise<void> => {
      try {
        const value = await fetcher();
        answered = true;
        if (!stopped) setRemote({ kind: "live", value, at: Date.now() });
      } catch (cause) {
        if (stopped) return;
        setRemote((before) => afterFailure(answered ? before : { kind: "loading" }, cause));
        if (afterFailure({ kind: "loading" }, cause).kind === "refused") return;
      }
      if (!stopped) timer = window.setTimeout(() => void poll(), period_ms);
    };
    void poll();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [fetcher, period_ms]);
  return remote;
}
