/** A new job: its document is written here, from an example or from that of another job, whose place or state it may take. */
import type { ComponentChildren } from "preact";
import { useCallback, useId, useMemo, useRef, useState } from "preact/hooks";
import { fetchDocumentText, type JobFinding } from "../api/job-documents";
import type { Job, JobGraph } from "../api/jobs";
import type { Complete } from "../completion";
import { completeJob } from "../job-document/completion";
import { graphOf } from "../job-document/graph";
import { withNearest } from "../job-document/places";
import { STARTER } from "../job-document/starter";
import { jsonOf, readTree, textOf, valueOf } from "../job-document/tree";
import { documentCopy } from "../job-document/yaml";
import { errorEdges } from "../live/job-state";
import { latest } from "../live/remote";
import { useAsked } from "../live/use-asked";
import { keptText, useDraftText } from "../live/use-draft-text";
import { useJobCheck } from "../live/use-job-check";
import { type Submission, useJobSubmission } from "../live/use-job-submission";
import { useJobTests } from "../live/use-job-tests";
import { useJobWords } from "../live/use-job-words";
import { useRunningJob } from "../live/use-running-job";
import { jobsParams, type JobsMover, type JobsPlace } from "../pages/jobs-place";
import { follow, href } from "../route";
import { applyEdit } from "./field-edit";
import { goTo, JobEditor } from "./job-editor";
import { JobCheckState, JobFindings } from "./job-findings";
import { JobGraphView } from "./job-graph";
import { JobTests } from "./job-tests";
import { Notice, RemoteNotice, sentence } from "./notice";
import { RoleButton } from "./role-button";

interface NewJobProps {
  /** The id of the job whose document is copied. */
  copyOf: string | null;
  /** It goes on from that job's state. */
  resumes: boolean;
  place: JobsPlace;
  onMove: JobsMover;
}

export function NewJob(props: NewJobProps): ComponentChildren {
  const { copyOf, resumes, place } = props;
  const key = `millstream.${resumes ? "resumed-job" : "new-job"} ${place.tenant} ${copyOf ?? ""}`;
  // A text that is kept later is that of this very page.
  const [wasKept] = useState(() => keptText(key) !== null);
  if (copyOf === null || wasKept) return <Draft {...props} storageKey={key} start={STARTER} />;
  return <CopiedDraft {...props} copyOf={copyOf} storageKey={key} />;
}

function CopiedDraft(props: NewJobProps & { copyOf: string; storageKey: string }): ComponentChildren {
  const { copyOf, resumes, place } = props;
  const { tenant } = place;
  const { remote } = useAsked(
    useCallback(
      () => fetchDocumentText(tenant, copyOf).then((text) => documentCopy(text, resumes ? copyOf : null)),
      [tenant, copyOf, resumes],
    ),
  );
  const start = latest(remote);
  if (start !== null) return <Draft {...props} start={start} />;
  return (
    <>
      <Head place={place} />
      <RemoteNotice remote={remote} what="the job to copy" />
    </>
  );
}

function Draft(props: NewJobProps & { storageKey: string; start: string }): ComponentChildren {
  const { place, storageKey, start, onMove } = props;
  const { text, write, forget } = useDraftText(storageKey, start);
  const { graph, ofErrors, name } = useMemo(() => drawn(text), [text]);
  const running = useRunningJob(place.tenant, name);
  const [toReplace, setToReplace] = useState<string | null>(null);
  const replaces = running !== null && running.id === toReplace;
  const { check, findings, refuse } = useJobCheck(place.tenant, text, replaces);
  const tests = useJobTests(place.tenant, text, refuse);
  const { submission, submit } = useJobSubmission(place.tenant, text, replaces, refuse, (id) => {
    forget();
    onMove({ draft: null, job: id }, "amend");
  });
  const isBusy = check.kind !== "valid" || tests.state.kind === "running" || submission.kind === "asking";
  const words = useJobWords(place.tenant);
  const complete: Complete = (now, caret, asked) => completeJob(now, caret, words, asked);
  const field = useRef<HTMLTextAreaElement>(null);
  const faulty = useMemo(() => linesOf(findings), [findings]);
  const takeOf = (finding: JobFinding): (() => void) | null => {
    const edit = withNearest(text, finding);
    if (edit === null) return null;
    return () => {
      if (field.current !== null) applyEdit(field.current, edit);
    };
  };
  return (
    <>
      <Head place={place}>
        <JobCheckState check={check} count={findings.length} />
        <span class="spring" />
        <div class="job-actions">
          <RoleButton role="writer" isBusy={isBusy} onClick={tests.run}>
            Test
          </RoleButton>
          <RoleButton role="writer" look="primary" isBusy={isBusy} onClick={submit}>
            Submit
          </RoleButton>
        </div>
      </Head>
      {running !== null && (
        <ReplaceChoice
          running={running}
          isChosen={replaces}
          isAsking={submission.kind === "asking"}
          place={place}
          onChoose={(isChosen) => {
            setToReplace(isChosen ? running.id : null);
          }}
        />
      )}
      <SubmissionNotice submission={submission} place={place} />
      <div class="job-draft">
        <section class="card" aria-label="Document">
          <JobEditor text={text} field={field} faulty={faulty} complete={complete} onText={write} />
        </section>
        <div class="job-draft-side">
          {findings.length > 0 && (
            <JobFindings
              findings={findings}
              onGo={({ line, column }) => {
                if (field.current !== null) goTo(field.current, line, column);
              }}
              onTake={takeOf}
            />
          )}
          <JobTests
            state={tests.state}
            text={text}
            onGo={(line) => {
              if (field.current !== null) goTo(field.current, line, 1);
            }}
          />
          {graph.nodes.length > 0 && (
            <JobGraphView
              graph={graph}
              ofErrors={ofErrors}
              alive={false}
              isCompact
              tapped={null}
              onTap={() => undefined}
            />
          )}
        </div>
      </div>
    </>
  );
}

function SubmissionNotice({ submission, place }: { submission: Submission; place: JobsPlace }): ComponentChildren {
  switch (submission.kind) {
    case "none":
    case "asking":
      return null;
    case "refused":
      return (
        <Notice tone="error" title="The job was not submitted">
          {sentence(submission.reason)}{" "}
          {submission.replaces && submission.holder === null && "The running job goes on. "}
          {submission.holder !== null && (
            <a href={href("jobs", jobsParams({ ...place, draft: null, job: submission.holder }))} onClick={follow}>
              Go to the running job
            </a>
          )}
        </Notice>
      );
    case "unanswered":
      return (
        <Notice tone="warning" title="The job may have been submitted">
          {sentence(submission.reason)} Look at the list of jobs before you submit it again.
        </Notice>
      );
  }
}

/** The way to put the new job in the place of the one that has its name. */
function ReplaceChoice(props: {
  running: Job;
  isChosen: boolean;
  isAsking: boolean;
  place: JobsPlace;
  onChoose: (isChosen: boolean) => void;
}): ComponentChildren {
  const { running, isChosen, isAsking, place, onChoose } = props;
  const hint = useId();
  return (
    <section class="card job-replace" aria-label="The running job of this name">
      <label class="choice">
        <input
          type="checkbox"
          checked={isChosen}
          aria-describedby={hint}
          onChange={(event) => {
            onChoose(event.currentTarget.checked);
          }}
        />
        <span>Replace the running job {running.name}</span>
      </label>
      <p class="facts" id={hint}>
        One job of a name runs at a time. The document is checked first; then{" "}
        <a href={href("jobs", jobsParams({ ...place, draft: null, job: running.id }))} onClick={follow}>
          the running job
        </a>{" "}
        finishes what it has read, and this one goes on from there. If it is refused, the running job goes on.
      </p>
      {isChosen && isAsking && <p role="status">Replacing: the running job finishes what it has read…</p>}
    </section>
  );
}

function drawn(text: string): { graph: JobGraph; ofErrors: ReadonlySet<string>; name: string } {
  const document = readTree(text);
  const graph = graphOf(document);
  const name = textOf(valueOf(document, "name")) ?? "";
  return { graph, ofErrors: errorEdges(jsonOf(document), graph.edges), name };
}

/** The lines of the document that have a fault. */
function linesOf(findings: readonly JobFinding[]): ReadonlySet<number> {
  return new Set(findings.filter(({ bundle }) => bundle === null).map(({ line }) => line));
}

function Head({ place, children }: { place: JobsPlace; children?: ComponentChildren }): ComponentChildren {
  return (
    <div class="page-head">
      <nav aria-label="Way back" class="crumb">
        <a href={href("jobs", jobsParams({ ...place, draft: null }))} onClick={follow}>
          Jobs
        </a>
        <span aria-hidden="true">›</span>
      </nav>
      <h1>New job</h1>
      {children}
    </div>
  );
}
