/** The tests of a document, run by the server when somebody wants it. */
import { useState } from "preact/hooks";
import { findingsOf, type JobFinding, testDocument, type TestResult } from "../api/job-documents";

export type TestsState =
  | { kind: "none" }
  | { kind: "running" }
  /** The results for exactly this text. */
  | { kind: "done"; text: string; results: readonly TestResult[] }
  | { kind: "failed"; reason: string };

/** `refuse` takes the faults of a document that the server does not run. */
export function useJobTests(
  tenant: string,
  text: string,
  refuse: (findings: readonly JobFinding[]) => void,
): { state: TestsState; run: () => void } {
  const [state, setState] = useState<TestsState>({ kind: "none" });
  const run = async (): Promise<void> => {
    setState({ kind: "running" });
    try {
      setState({ kind: "done", text, results: await testDocument(tenant, text) });
    } catch (cause) {
      const findings = findingsOf(cause);
      if (findings !== null) refuse(findings);
      setState({ kind: "failed", reason: cause instanceof Error ? cause.message : String(cause) });
    }
  };
  return { state, run: () => void run() };
}
