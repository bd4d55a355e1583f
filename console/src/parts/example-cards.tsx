/** Questions to begin with, shown where the answer will be. */
import type { ComponentChildren } from "preact";
import type { Example } from "../query/examples";
import { tokens } from "../query/text";

export function ExampleCards(props: {
  examples: readonly Example[];
  onTake: (text: string) => void;
}): ComponentChildren {
  const { examples, onTake } = props;
  return (
    <section aria-label="Examples">
      <ul class="example-cards">
        {examples.map(({ title, text }) => (
          <li key={title} class="example-card">
            <button
              type="button"
              onClick={() => {
                onTake(text);
              }}
            >
              {title}
            </button>
            <code>
              {tokens(text, []).map((token, index) => (
                <span key={index} class={token.kind}>
                  {token.text}
                </span>
              ))}
            </code>
          </li>
        ))}
      </ul>
    </section>
  );
}
