/** Ask a question of data that has not arrived yet, and watch the answer. */
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Finding } from "../api/http";
import { IDLE, type QueryState, QuerySession, ROWS_MAX, serverOf, type Snapshot } from "../live/session";
import { Editor } from "../parts/editor";
import { Notice } from "../parts/notice";
import { QueryStatus } from "../parts/query-status";
import { RowsChart } from "../parts/rows-chart";
import { RowsTable } from "../parts/rows-table";
import { RunningQueries } from "../parts/running";
import { counted, whole } from "../format";
import { go, href } from "../route";
import { EXAMPLES } from "./examples";

const SETTLE_MS = 300;
const NO_FINDINGS: readonly Finding[] = [];

export function QueryPage({ params }: { params: URLSearchParams }): ComponentChildren {
  const tenant = params.get("tenant") ?? "";
  const [text, setText] = useText(params);
  const { snapshot, run, stop } = useSession(tenant);
  const { state } = snapshot;
  const busy = state.kind === "asking" || state.kind === "live" || state.kind === "stopping";
  const findings = state.kind === "refused" && state.text === text ? state.findings : NO_FINDINGS;
  const choose = (change: Record<string, string>): void => {
    go(href("query", { ...Object.fromEntries(params), ...change }), "amend");
  };

  return (
    <div class="page">
      <div class="page-head">
        <h1>Query</h1>
        <p class="facts">Answers come from records that arrive from now on.</p>
      </div>
      <section class="card query-card" aria-label="Question">
        <Editor
          text={text}
          findings={findings}
          onText={setText}
          onRun={() => {
            run(text);
          }}
        />
        <div class="query-actions">
          {busy ? (
            <button type="button" class="primary stop" onClick={stop} disabled={state.kind === "stopping"}>
              Stop
            </button>
          ) : (
            <button
              type="button"
              class="primary"
              onClick={() => {
                run(text);
              }}
              disabled={text.trim() === ""}
            >
              Run
            </button>
          )}
          <kbd>Ctrl Enter</kbd>
          <ul class="examples" aria-label="Examples">
            {EXAMPLES.map((example) => (
              <li key={example.title}>
                <button
                  type="button"
                  class="chip"
                  title={example.text}
                  onClick={() => {
                    setText(example.text);
                  }}
                >
                  {example.title}
                </button>
              </li>
            ))}
          </ul>
        </div>
      </section>
      <QueryStatus snapshot={snapshot} />
      <Answer snapshot={snapshot} params={params} onChoose={choose} />
      <RunningQueries tenant={tenant} own={snapshot.id} />
    </div>
  );
}

function Answer(props: {
  snapshot: Snapshot;
  params: URLSearchParams;
  onChoose: (change: Record<string, string>) => void;
}): ComponentChildren {
  const { snapshot, params, onChoose } = props;
  const { state, rows, columns, received, dropped } = snapshot;
  if (state.kind === "idle" || state.kind === "refused") return null;
  if (received === 0) return <NoRows state={state} />;
  return (
    <>
      {dropped > 0 && (
        <p class="dropped" role="status">
          Showing the newest {whole(ROWS_MAX)} of {counted(received, "row")}; {whole(dropped)} older ones were let go.
        </p>
      )}
      <div class="answer">
        <section class="card answer-rows" aria-label="Answer">
          <RowsTable key={snapshot.id} columns={columns} rows={rows} received={received} />
        </section>
        <section class="card answer-chart" aria-label="Chart">
          <RowsChart columns={columns} rows={rows} params={params} onChoose={onChoose} />
        </section>
      </div>
    </>
  );
}

function NoRows({ state }: { state: QueryState }): ComponentChildren {
  if (state.kind === "ended") return <Notice tone="quiet" title="No record matched" />;
  // Not while the server has yet to take the query: what arrives until then is not part of the answer.
  if (state.kind !== "live" && state.kind !== "stopping") return null;
  return <Notice tone="quiet" title="Waiting for the first record that matches…" />;
}

/** The text being written; the address bar follows when the hand rests. */
function useText(params: URLSearchParams): [string, (text: string) => void] {
  const inAddress = params.get("q");
  const [text, setText] = useState(inAddress ?? EXAMPLES[0].text);
  const written = useRef(text);
  const timer = useRef(0);
  const current = useRef(params);
  useEffect(() => {
    current.current = params;
  }, [params]);
  useEffect(
    () => () => {
      clearTimeout(timer.current);
    },
    [],
  );
  // The back button brings back the text that stood there.
  useEffect(() => {
    if (inAddress === null || inAddress === written.current) return;
    written.current = inAddress;
    setText(inAddress);
  }, [inAddress]);
  const write = useCallback((next: string): void => {
    written.current = next;
    setText(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      go(href("query", { ...Object.fromEntries(current.current), q: next }), "amend");
    }, SETTLE_MS);
  }, []);
  return [text, write];
}

/** At most one query at a time; a new one, another tenant, or leaving the page ends it. */
function useSession(tenant: string): { snapshot: Snapshot; run: (text: string) => void; stop: () => void } {
  const [snapshot, setSnapshot] = useState<Snapshot>(IDLE);
  const session = useRef<QuerySession | null>(null);
  const server = useMemo(() => serverOf(tenant), [tenant]);
  useEffect(
    () => () => {
      session.current?.close();
      session.current = null;
      setSnapshot(IDLE);
    },
    [server],
  );
  const run = useCallback(
    (text: string): void => {
      session.current?.close();
      const next = new QuerySession(server, text, setSnapshot);
      session.current = next;
      void next.run();
    },
    [server],
  );
  const stop = useCallback((): void => {
    session.current?.stop();
  }, []);
  return { snapshot, run, stop };
}
