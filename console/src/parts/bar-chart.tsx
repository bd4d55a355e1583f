/** Bars beside the names of what they are of: a table that is read at a glance. */
import type { ComponentChildren } from "preact";
import { type Bars, extent } from "../live/bars";
import { seriesColour } from "./chart";

export function BarChart(props: {
  title: string;
  columns: readonly string[];
  bars: Bars;
  format: (value: number) => string;
}): ComponentChildren {
  const { title, columns, bars, format } = props;
  return (
    <figure class="chart">
      <figcaption>
        <h3>{title}</h3>
        {columns.length > 1 && (
          <ul class="legend">
            {columns.map((name, index) => (
              <li key={name}>
                <i style={{ background: `var(${seriesColour(index)})` }} />
                {name}
              </li>
            ))}
          </ul>
        )}
      </figcaption>
      <div class="bars-scroll" tabIndex={0} role="region" aria-label={`Bars of ${columns.join(", ")}`}>
        <table class="bars">
          <tbody>
            {bars.groups.map(({ label, values }, index) => (
              <tr key={`${index} ${label}`}>
                <th scope="row" title={label}>
                  {label}
                </th>
                <td>
                  {values.map((value, column) => (
                    <Bar key={column} value={value} bars={bars} colour={seriesColour(column)} format={format} />
                  ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {bars.hidden > 0 && <p class="chart-note">{bars.hidden} more are not drawn.</p>}
    </figure>
  );
}

function Bar(props: {
  value: number | null;
  bars: Bars;
  colour: string;
  format: (value: number) => string;
}): ComponentChildren {
  const { value, bars, colour, format } = props;
  const { from, size } = extent(value ?? 0, bars);
  return (
    <div class="bar-line">
      <span class="bar-track" aria-hidden="true">
        <i style={{ left: `${100 * from}%`, width: `${100 * size}%`, background: `var(${colour})` }} />
      </span>
      <b>{value === null ? "–" : format(value)}</b>
    </div>
  );
}
