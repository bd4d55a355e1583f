/** One thing that is wrong with a query, or odd: the line, marks under the place, what it is, and what was probably meant. */
import type { ComponentChildren } from "preact";
import type { Finding } from "../api/http";
import { excerpt } from "../query/text";

export function FindingLine(props: {
  text: string;
  finding: Finding;
  onGo: () => void;
  onTake: () => void;
}): ComponentChildren {
  const { text, finding, onGo, onTake } = props;
  const { line, marks } = excerpt(text, finding);
  return (
    <li class={finding.kind}>
      <pre aria-hidden="true">
        {line}
        {"\n"}
        <span class="marks">{marks}</span>
      </pre>
      <p>
        <button type="button" class="link" onClick={onGo}>
          Line {finding.line}, column {finding.column}
        </button>
        : {finding.message}
        {finding.suggestion !== null && (
          <>
            {" – did you mean "}
            <button type="button" class="link" onClick={onTake}>
              {finding.suggestion}
            </button>
            ?
          </>
        )}
      </p>
    </li>
  );
}
