/** The only row of an answer, as large figures with their labels. */
import type { ComponentChildren } from "preact";
import { type Figure, figureText } from "../query/figures";

export function Figures({ figures }: { figures: readonly Figure[] }): ComponentChildren {
  return (
    <dl class="figures">
      {figures.map(({ label, value }) => (
        <div key={label} class="figure">
          <dt>{label}</dt>
          <dd class={typeof value === "number" ? "" : "text"} title={String(value)}>
            {figureText(value)}
          </dd>
        </div>
      ))}
    </dl>
  );
}
