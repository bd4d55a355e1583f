/** One figure, large, with what explains it below. */
import type { ComponentChildren } from "preact";

export function Tile(props: {
  label: string;
  value: string;
  unit?: string;
  /** From 0 to 1: shown as a bar. */
  share?: number;
  children: ComponentChildren;
}): ComponentChildren {
  const { label, value, unit, share, children } = props;
  return (
    <div class="tile" role="group" aria-label={label}>
      <h2>{label}</h2>
      <p class="tile-value">
        {value}
        {unit !== undefined && <small>{unit}</small>}
      </p>
      {share !== undefined && (
        <div class="meter" aria-hidden="true">
          <i style={{ width: `${Math.min(100, Math.max(0, 100 * share))}%` }} />
        </div>
      )}
      <p class="tile-note">{children}</p>
    </div>
  );
}
