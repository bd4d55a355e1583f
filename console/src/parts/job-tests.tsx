/** The results of a document's tests, each with what differs from what it expects. */
import type { ComponentChildren } from "preact";
import type { TestDifference, TestResult } from "../api/job-documents";
import type { TestsState } from "../live/use-job-tests";
import { Notice, sentence } from "./notice";

export function JobTests(props: {
  state: TestsState;
  /** The document as it is now. */
  text: string;
  onGo: (line: number) => void;
}): ComponentChildren {
  const { state, text, onGo } = props;
  switch (state.kind) {
    case "none":
      return null;
    case "running":
      return <Notice tone="quiet" title="The tests run…" />;
    case "failed":
      return (
        <Notice tone="error" title="The tests were not run">
          {sentence(state.reason)}
        </Notice>
      );
    case "done":
      if (state.results.length === 0) {
        return (
          <Notice tone="quiet" title="The document has no tests">
            Under <code>tests</code> stand the records that enter nodes, and those that must come out.
          </Notice>
        );
      }
      return <Results results={state.results} isOld={state.text !== text} onGo={onGo} />;
  }
}

function Results(props: {
  results: readonly TestResult[];
  /** The document has changed since. */
  isOld: boolean;
  onGo: (line: number) => void;
}): ComponentChildren {
  const { results, isOld, onGo } = props;
  const passed = results.filter((result) => result.passed).length;
  return (
    <section class="card cut-corners job-tests" aria-label="Tests">
      <h2>
        <span role="status">
          {passed} of {results.length} {results.length === 1 ? "test" : "tests"} passed
        </span>{" "}
        {isOld && <small>before the last changes</small>}
      </h2>
      <ul>
        {results.map((result, index) => (
          <li key={index}>
            <div class="test-head">
              <span class={`state ${result.passed ? "good" : "error"}`}>{result.passed ? "Passed" : "Failed"}</span>
              <span>{result.name}</span>
              <button
                type="button"
                class="link"
                onClick={() => {
                  onGo(result.line);
                }}
              >
                Line {result.line}
              </button>
            </div>
            {result.differences.map((difference, place) => (
              <Difference key={place} difference={difference} />
            ))}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Difference({ difference }: { difference: TestDifference }): ComponentChildren {
  const { node, message, expected, actual } = difference;
  return (
    <div class="difference">
      <p>
        {node !== null && (
          <>
            <code>{node}</code>:{" "}
          </>
        )}
        {message}
      </p>
      {expected !== null && actual !== null && (
        <dl>
          <dt>expected</dt>
          <dd>
            <code>{JSON.stringify(expected)}</code>
          </dd>
          <dt>came out</dt>
          <dd>
            <code>{JSON.stringify(actual)}</code>
          </dd>
        </dl>
      )}
    </div>
  );
}
