/** The editor of a query: coloured words, options below the caret, findings below. */
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { Finding } from "../api/http";
import { complete, type Known } from "../query/completion";
import { rangeOf, type Token, tokens, withSuggestion } from "../query/text";
import { FindingLine } from "./finding-line";
import { TextEditor } from "./text-editor";
import { useCompletion } from "./use-completion";

export function QueryEditor(props: {
  text: string;
  /** Of exactly this text. */
  findings: readonly Finding[];
  known: Known;
  onText: (text: string) => void;
  onRun: () => void;
}): ComponentChildren {
  const { text, findings, known, onText, onRun } = props;
  const field = useRef<HTMLTextAreaElement>(null);
  const completion = useCompletion(field, text, (now, caret, asked) => complete(now, caret, known, asked));
  // A word that is being completed is not wrong yet.
  const told = completion.shown === null ? findings : [];
  const goTo = (finding: Finding): void => {
    const { start, end } = rangeOf(text, finding);
    field.current?.focus();
    field.current?.setSelectionRange(start, end);
  };
  const runs = (event: KeyboardEvent): boolean => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return false;
    completion.close();
    onRun();
    return true;
  };
  return (
    <div class="editor">
      <TextEditor
        label="Query"
        text={text}
        field={field}
        completion={completion}
        isInvalid={told.some(({ kind }) => kind === "error")}
        describedBy={told.length > 0 ? "findings" : undefined}
        onText={onText}
        onKey={runs}
      >
        {tokens(text, told).map((token, index) => (
          <span key={index} class={marked(token, told)}>
            {token.text}
          </span>
        ))}
        {"\n"}
      </TextEditor>
      {told.length > 0 && (
        <ul class="findings" id="findings">
          {told.map((finding, index) => (
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

/** The class of a word: how it is coloured, and how underlined if something points at it. */
function marked(token: Token, told: readonly Finding[]): string {
  const finding = token.finding === null ? undefined : told[token.finding];
  return finding === undefined ? token.kind : `${token.kind} marked ${finding.kind}`;
}
