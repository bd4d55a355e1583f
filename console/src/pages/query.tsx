/** Ask a question of data that has not arrived yet, and watch the answer. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { useFindings } from "../live/findings";
import { useKnown } from "../live/known";
import { useExamples } from "../live/use-examples";
import { useSession } from "../live/use-session";
import { Answer } from "../parts/answer";
import { QueryEditor } from "../parts/query-editor";
import { ExampleCards } from "../parts/example-cards";
import { Notice } from "../parts/notice";
import { QueryActions } from "../parts/query-actions";
import { QueryRange } from "../parts/query-range";
import { QueryStatus } from "../parts/query-status";
import { RunningQueries } from "../parts/running";
import { rangeRequest } from "../query/range";
import { type ResultTiming, resultTiming } from "../query/result-timing";
import { go, href, type Place } from "../route";
import { queryHref, useQueryText } from "./query-text";

export function QueryPage({ place }: { place: Place }): ComponentChildren {
  const { params } = place;
  const tenant = params.get("tenant") ?? "";
  const [text, setText] = useQueryText(place);
  const { snapshot, run, stop } = useSession(tenant);
  const { state } = snapshot;
  const found = useFindings(tenant, text);
  const findings = state.kind === "refused" && state.text === text ? state.findings : found;
  const examples = useExamples(tenant);
  const known = useKnown(tenant, text, snapshot.columns);
  const range = { from: params.get("from") ?? "", until: params.get("until") ?? "" };
  const [unreadable, setUnreadable] = useState<string | null>(null);
  const [timing, setTiming] = useState<ResultTiming>({ kind: "rows" });
  const runNow = (): void => {
    const request = rangeRequest(range, Date.now());
    setUnreadable(typeof request === "string" ? request : null);
    if (typeof request === "string") return;
    setTiming(resultTiming(text, request));
    run(text, request);
  };
  const choose = (change: Readonly<Record<string, string>>): void => {
    go(href("query", { ...Object.fromEntries(params), ...change }, { q: text }), "amend");
  };
  return (
    <div class="page">
      <div class="page-head">
        <h1>Query</h1>
        <p class="facts">Answers come from records that arrive from now on, unless the query begins earlier.</p>
      </div>
      <section class="card query-card" aria-label="Question">
        <QueryEditor text={text} findings={findings} known={known} onText={setText} onRun={runNow} />
        <QueryActions
          text={text}
          state={state}
          examples={examples}
          link={() => new URL(queryHref(params, text), location.href).href}
          onText={setText}
          onRun={runNow}
          onStop={stop}
        />
        <QueryRange range={range} onChange={choose} />
        {unreadable !== null && (
          <Notice tone="error" title="The query was not asked">
            {unreadable}
          </Notice>
        )}
      </section>
      {state.kind === "idle" && <ExampleCards examples={examples} onTake={setText} />}
      <QueryStatus snapshot={snapshot} />
      <Answer tenant={tenant} snapshot={snapshot} timing={timing} params={params} onChoose={choose} />
      <RunningQueries tenant={tenant} own={snapshot.id} />
    </div>
  );
}
