/** Where a query is written: a text field with coloured words behind it, and findings under the place they mean. */
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { Finding } from "../api/http";
import { excerpt, rangeOf, tokens, withSuggestion } from "../query-text";

export function Editor(props: {
  text: string;
  /** Of exactly this text. */
  findings: readonly Finding[];
  onText: (text: string) => void;
  onRun: () => void;
}): ComponentChildren {
  const { text, findings, onText, onRun } = props;
  const field = useRef<HTMLTextAreaElement>(null);
  const goTo = (finding: Finding): void => {
    const { start, end } = rangeOf(text, finding);
    field.current?.focus();
    field.current?.setSelectionRange(start, end);
  };
  return (
    <div class="editor">
      <div class="editor-field">
        <pre aria-hidden="true">
          {tokens(text, findings).map((token, index) => (
            <span key={index} class={token.finding === null ? token.kind : `${token.kind} bad`}>
              {token.text}
            </span>
          ))}
          {"\n"}
        </pre>
        <textarea
          ref={field}
          value={text}
          aria-label="Query"
          aria-invalid={findings.length > 0}
          aria-describedby={findings.length > 0 ? "findings" : undefined}
          spellcheck={false}
          autocomplete="off"
          autocapitalize="off"
          onInput={(event) => {
            onText(event.currentTarget.value);
          }}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
            event.preventDefault();
            onRun();
          }}
        />
      </div>
      {findings.length > 0 && (
        <ul class="findings" id="findings">
          {findings.map((finding, index) => (
            <FindingLine
              key={index}
              text={text}
              finding={finding}
              onGo={() => {
                goTo(finding);
              }}
              onTake={() => {
                onText(withSuggestion(text, finding));
                field.current?.focus();
              }}
            />
          ))}
        </ul>
      )}
    </div>
  );
}

function FindingLine(props: {
  text: string;
  finding: Finding;
  onGo: () => void;
  onTake: () => void;
}): ComponentChildren {
  const { text, finding, onGo, onTake } = props;
  const { line, marks } = excerpt(text, finding);
  return (
    <li>
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
