/** The submission of a document, once somebody wants it. */
import { useState } from "preact/hooks";
import { findingsOf, holderOf, type JobFinding, submitDocument } from "../api/job-documents";
import { Unreachable } from "../api/http";

export type Submission =
  | { kind: "none" }
  | { kind: "asking" }
  /** The server has refused exactly this text; `holder` is the running job that has its name. */
  | { kind: "refused"; text: string; replaces: boolean; reason: string; holder: string | null }
  /** The server did not answer: it may have the job. */
  | { kind: "unanswered"; reason: string };

export function useJobSubmission(
  tenant: string,
  text: string,
  /** It takes the place of the running job of its name. */
  replaces: boolean,
  refuse: (findings: readonly JobFinding[]) => void,
  onSubmitted: (id: string) => void,
): { submission: Submission; submit: () => void } {
  const [submission, setSubmission] = useState<Submission>({ kind: "none" });
  const submit = async (): Promise<void> => {
    setSubmission({ kind: "asking" });
    try {
      onSubmitted(await submitDocument(tenant, text, replaces));
    } catch (cause) {
      const findings = findingsOf(cause);
      if (findings !== null) refuse(findings);
      const reason = cause instanceof Error ? cause.message : String(cause);
      if (cause instanceof Unreachable) setSubmission({ kind: "unanswered", reason });
      else setSubmission({ kind: "refused", text, replaces, reason, holder: holderOf(cause) });
    }
  };
  // A refusal is of what was sent, and not of the next text, nor of another way to submit it.
  const isPast = submission.kind === "refused" && (submission.text !== text || submission.replaces !== replaces);
  return { submission: isPast ? { kind: "none" } : submission, submit: () => void submit() };
}
