/**
 * The rows of a live query, newest first. Only the rows in sight are in the document.
 *
 * While the reader has scrolled down, the rows stand still and the table says how many newer ones wait above.
 */
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { clock, counted } from "../format";
import type { Row } from "../live/session";
import { alignment, Value } from "./value";

const ROW_HEIGHT_PX = 30;
/** Rows drawn beyond each edge, so that a quick scroll shows no gap. */
const OVERDRAW = 8;

interface Held {
  rows: readonly Row[];
  received: number;
}

export function RowsTable(props: {
  columns: readonly string[];
  /** In the order in which they are read. */
  rows: readonly Row[];
  received: number;
  /** Whether the rows are of windows. */
  windows: boolean;
}): ComponentChildren {
  const { columns, rows, received, windows } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [scroll, setScroll] = useState({ top: 0, height: 480 });
  const [held, setHeld] = useState<Held | null>(null);
  const shown = held?.rows ?? rows;
  const newer = held === null ? 0 : received - held.received;

  const scrolled = (): void => {
    const element = scroller.current;
    if (element === null) return;
    setScroll({ top: element.scrollTop, height: element.clientHeight });
    if (element.scrollTop < ROW_HEIGHT_PX) setHeld(null);
    else setHeld((before) => before ?? { rows, received });
  };
  const toTop = (): void => {
    setHeld(null);
    scroller.current?.scrollTo({ top: 0 });
  };

  const from = Math.max(0, Math.floor(scroll.top / ROW_HEIGHT_PX) - OVERDRAW);
  const until = Math.min(shown.length, Math.ceil((scroll.top + scroll.height) / ROW_HEIGHT_PX) + OVERDRAW);
  const visible = shown.slice(from, until);
  return (
    <div class="rows">
      {newer > 0 && (
        <button type="button" class="newer" onClick={toTop}>
          Show {counted(newer, "newer row")}
        </button>
      )}
      <div class="scroll rows-scroll" ref={scroller} onScroll={scrolled} tabIndex={0} role="region" aria-label="Rows">
        <table aria-rowcount={shown.length}>
          <thead>
            <tr>
              <th scope="col" class="number">
                #
              </th>
              {windows && (
                <th scope="col" class="number">
                  Window
                </th>
              )}
              <th scope="col">{windows ? "Given" : "Arrived"}</th>
              {columns.map((name) => (
                <th key={name} scope="col" class={alignment(shown[0]?.record[name])}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            <Spacer rows={from} />
            {visible.map((row) => (
              <tr key={row.number} style={{ height: `${ROW_HEIGHT_PX}px` }}>
                <td class="number quiet">{row.number}</td>
                {windows && <td class="number quiet">{row.window}</td>}
                <td class="quiet">{clock(row.at_ms)}</td>
                {columns.map((name) => (
                  <td key={name} class={alignment(row.record[name])}>
                    <Value value={row.record[name]} />
                  </td>
                ))}
              </tr>
            ))}
            <Spacer rows={shown.length - until} />
          </tbody>
        </table>
      </div>
    </div>
  );
}

/** Room for the rows that are not in the document. */
function Spacer({ rows }: { rows: number }): ComponentChildren {
  return rows <= 0 ? null : <tr aria-hidden="true" style={{ height: `${rows * ROW_HEIGHT_PX}px` }} />;
}
