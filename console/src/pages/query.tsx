/** Ask a question of data that has not arrived yet, and watch the answer. */
import type { ComponentChildren } from "preact";
import { useFindings } from "../live/findings";
import { useKnown } from "../live/known";
import { useSession } from "../live/use-session";
import { Answer } from "../parts/answer";
import { Editor } from "../parts/editor";
import { ExampleCards } from "../parts/example-cards";
import { QueryActions } from "../parts/query-actions";
import { QueryStatus } from "../parts/query-status";
import { RunningQueries } from "../parts/running";
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
  const known = useKnown(tenant, text, snapshot.columns);
  const runNow = (): void => {
    run(text);
  };
  return (
    <div class="page">
      <div class="page-head">
        <h1>Query</h1>
        <p class="facts">Answers come from records that arrive from now on.</p>
      </div>
      <section class="card query-card" aria-label="Question">
        <Editor text={text} findings={findings} known={known} onText={setText} onRun={runNow} />
        <QueryActions
          text={text}
          state={state}
          link={() => new URL(queryHref(params, text), location.href).href}
          onText={setText}
          onRun={runNow}
          onStop={stop}
        />
      </section>
      {state.kind === "idle" && <ExampleCards onTake={setText} />}
      <QueryStatus snapshot={snapshot} />
      <Answer
        tenant={tenant}
        snapshot={snapshot}
        params={params}
        onChoose={(change) => {
          go(href("query", { ...Object.fromEntries(params), ...change }, { q: text }), "amend");
        }}
      />
      <RunningQueries tenant={tenant} own={snapshot.id} />
    </div>
  );
}
