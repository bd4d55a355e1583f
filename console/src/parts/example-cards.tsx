/** Questions to begin with, shown where the answer will be. */
import type { ComponentChildren } from "preact";
import { EXAMPLES } from "../pages/examples";
import { tokens } from "../query/text";

export function ExampleCards({ onTake }: { onTake: (text: string) => void }): ComponentChildren {
  return (
    <section aria-label="Examples">
      <ul class="example-cards">
        {EXAMPLES.map(({ title, text }) => (
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
