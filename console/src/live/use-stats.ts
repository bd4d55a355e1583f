/** The server's figures and their last five minutes, kept up to date. */
import { useCallback, useRef, useState } from "preact/hooks";
import { fetchStats, type Stats } from "../api/stats";
import { History } from "./history";
import { type Remote, usePolled } from "./remote";

const PERIOD_MS = 1_000;

export function useStats(tenant: string): { stats: Remote<Stats>; samples: History } {
  const [samples, setSamples] = useState(History.empty);
  // Figures of the server are the same for each tenant: its history outlives a change of the tenant.
  const newest = useRef(History.empty);
  const ask = useCallback(async () => {
    const value = await fetchStats(tenant, newest.current.missing_s(now_s()));
    newest.current = newest.current.with(value, now_s());
    setSamples(newest.current);
    return value;
  }, [tenant]);
  return { stats: usePolled(ask, PERIOD_MS), samples };
}

function now_s(): number {
  return Math.round(Date.now() / 1000);
}
