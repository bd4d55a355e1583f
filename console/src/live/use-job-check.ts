/** The server's word on a document while it is being written. */
import { useEffect, useState } from "preact/hooks";
import { checkDocument, type JobFinding } from "../api/job-documents";

/** Pause in typing after which the server is asked. */
const SETTLE_MS = 300;
/** Pause after which it is asked again where it did not answer. */
const AGAIN_MS = 3_000;

export type JobCheck =
  | { kind: "checking" }
  | { kind: "valid" }
  | { kind: "faulty" }
  /** The server cannot say. */
  | { kind: "unknown"; reason: string };

interface Checked {
  text: string;
  check: JobCheck;
  findings: readonly JobFinding[];
}

/** `findings` are those of the latest text that was checked, so that they do not flicker; `check` is of exactly this text. */
export function useJobCheck(
  tenant: string,
  text: string,
  /** A document that was refused in the place of a job is asked about again without that. */
  replaces: boolean,
): { check: JobCheck; findings: readonly JobFinding[]; refuse: (findings: readonly JobFinding[]) => void } {
  const [checked, setChecked] = useState<Checked>({ text: "", check: { kind: "checking" }, findings: [] });
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const ask = async (): Promise<void> => {
      try {
        const findings = await checkDocument(tenant, text, abort.signal);
        setChecked({ text, check: { kind: findings.length === 0 ? "valid" : "faulty" }, findings });
      } catch (cause) {
        if (abort.signal.aborted) return;
        const reason = cause instanceof Error ? cause.message : String(cause);
        setChecked((before) => ({ ...before, text, check: { kind: "unknown", reason } }));
        timer = window.setTimeout(() => void ask(), AGAIN_MS);
      }
    };
    timer = window.setTimeout(() => void ask(), SETTLE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [tenant, text, replaces]);
  const refuse = (findings: readonly JobFinding[]): void => {
    setChecked({ text, check: { kind: "faulty" }, findings });
  };
  return { check: checked.text === text ? checked.check : { kind: "checking" }, findings: checked.findings, refuse };
}
