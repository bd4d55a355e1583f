/** The graph of a job: a box for each node with its figures, and an arrow for each edge that opens its tap. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { GraphEdge, GraphNode, JobGraph } from "../api/jobs";
import { counted, short } from "../format";
import { arrowHead, COMPACT, type Edge, layout, type Line, linePath, WITH_FIGURES, WITH_NAMES } from "../graph/layout";
import { edgeKey } from "../live/job-state";
import { JobNodeBox } from "./job-node";

/** Distance from the middle of an edge's button to the box that the edge leads to. */
const BUTTON_INSET = 42;

export function JobGraphView(props: {
  graph: JobGraph;
  /** Edges, as `from,to`, that carry errors. */
  ofErrors: ReadonlySet<string>;
  /** The job has not ended: its edges can be tapped. */
  alive: boolean;
  /** The graph stands beside a text. */
  isCompact?: boolean;
  tapped: Edge | null;
  onTap: (edge: Edge) => void;
}): ComponentChildren {
  const { graph, ofErrors, alive, isCompact = false, tapped, onTap } = props;
  const hasFigures = graph.nodes.some((node) => node.figures !== null || node.waits !== null);
  const sizes = isCompact ? COMPACT : hasFigures ? WITH_FIGURES : WITH_NAMES;
  const shape = JSON.stringify([graph.nodes.map(({ name }) => name), graph.edges.map(({ from, to }) => [from, to])]);
  const drawn = useMemo(() => {
    const [names, edges] = JSON.parse(shape) as [string[], [string, string][]];
    return layout(
      names,
      edges.map(([from, to]) => ({ from, to })),
      sizes,
    );
  }, [shape, sizes]);
  const nodes = new Map(graph.nodes.map((node) => [node.name, node]));
  const edges = new Map(graph.edges.map((edge) => [edgeKey(edge), edge]));
  const chosen = tapped === null ? "" : edgeKey(tapped);
  const classOf = (line: Line): string =>
    [
      "edge",
      edges.get(edgeKey(line))?.exchange === "queue" ? "queued" : "",
      ofErrors.has(edgeKey(line)) ? "of-errors" : "",
      edgeKey(line) === chosen ? "tapped" : "",
    ].join(" ");
  return (
    <section class="card cut-corners" aria-labelledby="job-graph">
      <h2 id="job-graph">Graph {alive && <small>Select the figure on an arrow to see its records.</small>}</h2>
      <div class="scroll graph-scroll" tabIndex={0} role="region" aria-label="Graph of the job">
        <div
          class={isCompact ? "graph compact" : "graph"}
          style={{ width: `${drawn.width}px`, height: `${drawn.height}px` }}
        >
          <svg width={drawn.width} height={drawn.height} aria-hidden="true">
            {drawn.lines.map((line) => (
              <g key={edgeKey(line)} class={classOf(line)}>
                <path class="line" d={linePath(line.points, sizes)} />
                <path class="head" d={arrowHead(line.points)} />
                {alive && (
                  <path
                    class="hit"
                    d={linePath(line.points, sizes)}
                    onClick={() => {
                      onTap({ from: line.from, to: line.to });
                    }}
                  />
                )}
              </g>
            ))}
          </svg>
          {drawn.boxes.map(({ name, x, y, height }) => {
            const node: GraphNode | undefined = nodes.get(name);
            if (node === undefined) return null;
            return (
              <JobNodeBox
                key={name}
                node={node}
                alive={alive}
                style={{ left: `${x}px`, top: `${y}px`, width: `${sizes.boxWidth}px`, height: `${height}px` }}
              />
            );
          })}
          {alive &&
            drawn.lines.map((line) => (
              <EdgeButton
                key={edgeKey(line)}
                line={line}
                edge={edges.get(edgeKey(line))}
                ofErrors={ofErrors.has(edgeKey(line))}
                pressed={edgeKey(line) === chosen}
                onTap={onTap}
              />
            ))}
        </div>
      </div>
    </section>
  );
}

function EdgeButton(props: {
  line: Line;
  edge: GraphEdge | undefined;
  ofErrors: boolean;
  pressed: boolean;
  onTap: (edge: Edge) => void;
}): ComponentChildren {
  const { line, edge, ofErrors, pressed, onTap } = props;
  const { from, to, points } = line;
  const end = points.at(-1);
  if (end === undefined) return null;
  const rate = edge?.rate == null ? "–" : short(edge.rate);
  const what = ofErrors ? "Errors" : "Records";
  return (
    <button
      type="button"
      class={ofErrors ? "edge-button of-errors" : "edge-button"}
      style={{ left: `${end.x - BUTTON_INSET}px`, top: `${end.y}px` }}
      aria-pressed={pressed}
      aria-label={`${what} from ${from} to ${to}: ${rate}/s`}
      title={titleOf(what, line, edge)}
      onClick={() => {
        onTap({ from, to });
      }}
    >
      {rate}/s
    </button>
  );
}

function titleOf(what: string, { from, to }: Line, edge: GraphEdge | undefined): string {
  const way = edge?.exchange === "queue" ? ", through a queue" : "";
  const passed = edge?.records == null ? "" : `: ${counted(edge.records, "record")}; the rate is over a minute`;
  return `${what} from ${from} to ${to}${way}${passed}`;
}
