/** The faults of a document, each with a way to its line. */
import type { ComponentChildren } from "preact";
import type { JobFinding } from "../api/job-documents";
import { counted } from "../format";
import type { JobCheck } from "../live/use-job-check";
import { sentence } from "./notice";

export function JobFindings(props: {
  findings: readonly JobFinding[];
  onGo: (finding: JobFinding) => void;
  /** Takes the nearest name; null where it cannot be put in by itself. */
  onTake: (finding: JobFinding) => (() => void) | null;
}): ComponentChildren {
  const { findings, onGo, onTake } = props;
  return (
    <section class="card cut-corners job-findings" aria-label="Findings">
      <h2>{counted(findings.length, "finding")}</h2>
      <ul>
        {findings.map((finding, index) => {
          const take = onTake(finding);
          return (
            <li key={index}>
              <div class="finding-place">
                {finding.bundle === null ? (
                  <button
                    type="button"
                    class="link"
                    onClick={() => {
                      onGo(finding);
                    }}
                  >
                    Line {finding.line}
                  </button>
                ) : (
                  <span>
                    Line {finding.line} of the bundle {finding.bundle}
                  </span>
                )}
                <code>{finding.path}</code>
              </div>
              <p>{sentence(finding.message)}</p>
              {take !== null && (
                <button type="button" class="chip" onClick={take}>
                  Use {finding.nearest}
                </button>
              )}
            </li>
          );
        })}
      </ul>
    </section>
  );
}

export function JobCheckState({ check, count }: { check: JobCheck; count: number }): ComponentChildren {
  const [tone, word, title] = ((): [string, string, string?] => {
    switch (check.kind) {
      case "checking":
        return ["quiet", "Checking"];
      case "valid":
        return ["good", "Valid"];
      case "faulty":
        return ["error", counted(count, "finding")];
      case "unknown":
        return ["warning", "Not checked", sentence(check.reason)];
    }
  })();
  return (
    <span role="status" class={`state ${tone}`} title={title}>
      {word}
    </span>
  );
}
