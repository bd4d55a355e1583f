/**
 * A job's graph in layers: sources left, sinks right, every edge from one layer to a later one.
 *
 * - An edge that passes layers has a bend in each of them, so that it runs beside the boxes and not through them.
 * - Each edge has a place of its own on the sides of its boxes; a box with many edges is higher.
 * - Names and edges alone decide: live figures never move a box.
 */

export interface Edge {
  from: string;
  to: string;
}

export interface Point {
  x: number;
  y: number;
}

export interface Box {
  name: string;
  /** The left upper corner. */
  x: number;
  y: number;
  height: number;
}

export interface Line extends Edge {
  /** From the right side of the first box to the left side of the second, with the bends between. */
  points: readonly Point[];
}

export interface Layout {
  width: number;
  height: number;
  boxes: readonly Box[];
  lines: readonly Line[];
}

export interface Sizes {
  boxWidth: number;
  boxHeight: number;
  layerGap: number;
  /** The last part of an edge is straight: its button and its head stand there. */
  straight: number;
}

/** Boxes with figures. */
export const WITH_FIGURES: Sizes = { boxWidth: 204, boxHeight: 116, layerGap: 124, straight: 66 };
/** Boxes with names alone. */
export const WITH_NAMES: Sizes = { ...WITH_FIGURES, boxHeight: 52 };
/** Boxes with names alone, and edges without buttons, for a graph beside a text. */
export const COMPACT: Sizes = { boxWidth: 110, boxHeight: 52, layerGap: 26, straight: 10 };
const HEAD = 7;
const ROW_GAP = 24;
const BEND_HEIGHT = 20;
/** Distance between edges on the side of a box. */
const PORT_GAP = 27;
const MARGIN = 8;
const SWEEPS = 8;

/** A box, or the bend of an edge that passes a layer. */
interface Item {
  /** Empty for a bend. */
  name: string;
  layer: number;
  height: number;
  /** The middle. */
  y: number;
  before: Item[];
  after: Item[];
}

export function layout(names: readonly string[], edges: readonly Edge[], sizes: Sizes): Layout {
  if (names.length === 0) return { width: 0, height: 0, boxes: [], lines: [] };
  const known = new Set(names);
  const drawn = edges.filter(({ from, to }) => known.has(from) && known.has(to) && from !== to);
  const layers = layersOf(names, drawn);
  const items = new Map(names.map((name) => [name, box(name, layers.get(name) ?? 0, drawn, sizes.boxHeight)]));
  const paths = drawn.map((edge) => pathOf(edge, items));
  const rows = rowsOf([...items.values()], paths);
  order(rows);
  place(rows);
  const all = rows.flat();
  const top = Math.min(...all.map(({ y, height }) => y - height / 2));
  for (const item of all) item.y += MARGIN - top;
  return {
    width: rows.length * (sizes.boxWidth + sizes.layerGap) - sizes.layerGap + 2 * MARGIN,
    height: Math.max(...all.map(({ y, height }) => y + height / 2)) + MARGIN,
    boxes: [...items.values()].map(({ name, layer, y, height }) => ({
      name,
      x: left(layer, sizes),
      y: y - height / 2,
      height,
    })),
    lines: drawn.map((edge, index) => ({ ...edge, points: pointsOf(paths[index] ?? [], paths, sizes) })),
  };
}

function left(layer: number, { boxWidth, layerGap }: Sizes): number {
  return MARGIN + layer * (boxWidth + layerGap);
}

/** The layer of each node: behind all that come before it; nodes without successors are in the last one. */
function layersOf(names: readonly string[], edges: readonly Edge[]): Map<string, number> {
  const layers = new Map(names.map((name) => [name, 0]));
  // As many rounds as there are nodes, at most: edges that run in a circle end there, too.
  for (let round = 1; round < names.length; round += 1) {
    let moved = false;
    for (const { from, to } of edges) {
      const behind = (layers.get(from) ?? 0) + 1;
      if (behind <= (layers.get(to) ?? 0) || behind >= names.length) continue;
      layers.set(to, behind);
      moved = true;
    }
    if (!moved) break;
  }
  const last = Math.max(0, ...layers.values());
  const fromAny = new Set(edges.map(({ from }) => from));
  const toAny = new Set(edges.map(({ to }) => to));
  for (const name of names) if (!fromAny.has(name) && toAny.has(name)) layers.set(name, last);
  return layers;
}

function box(name: string, layer: number, edges: readonly Edge[], least: number): Item {
  const into = edges.filter(({ to }) => to === name).length;
  const out = edges.filter(({ from }) => from === name).length;
  const height = Math.max(least, Math.max(into, out) * PORT_GAP + ROW_GAP);
  return { name, layer, height, y: 0, before: [], after: [] };
}

/** The boxes at both ends of an edge, with its bends between. */
function pathOf({ from, to }: Edge, items: ReadonlyMap<string, Item>): Item[] {
  const [first, last] = [items.get(from), items.get(to)];
  if (first === undefined || last === undefined) return [];
  const bends: Item[] = [];
  for (let layer = first.layer + 1; layer < last.layer; layer += 1) {
    bends.push({ name: "", layer, height: BEND_HEIGHT, y: 0, before: [], after: [] });
  }
  const path = [first, ...bends, last];
  for (let step = 1; step < path.length; step += 1) {
    const [before, after] = [path[step - 1], path[step]];
    if (before === undefined || after === undefined) continue;
    before.after.push(after);
    after.before.push(before);
  }
  return path;
}

function rowsOf(boxes: readonly Item[], paths: readonly Item[][]): Item[][] {
  const all = [...boxes, ...paths.flatMap((path) => path.slice(1, -1))];
  const count = Math.max(...all.map(({ layer }) => layer)) + 1;
  return Array.from({ length: count }, (_, layer) => all.filter((item) => item.layer === layer));
}

/** Orders each layer by the middle of its neighbours, to and fro, and keeps the order with the fewest crossings. */
function order(rows: Item[][]): void {
  let best = rows.map((row) => [...row]);
  let fewest = crossings(rows);
  for (let sweep = 0; sweep < SWEEPS && fewest > 0; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const row of forward ? rows : rows.toReversed()) {
      const ranks = new Map(rows.flatMap((of) => of.map((item, rank) => [item, rank] as const)));
      const middle = new Map(
        row.map((item) => {
          const beside = forward ? item.before : item.after;
          const sum = beside.reduce((total, other) => total + (ranks.get(other) ?? 0), 0);
          return [item, beside.length === 0 ? (ranks.get(item) ?? 0) : sum / beside.length] as const;
        }),
      );
      row.sort((a, b) => (middle.get(a) ?? 0) - (middle.get(b) ?? 0));
    }
    const now = crossings(rows);
    if (now < fewest) [best, fewest] = [rows.map((row) => [...row]), now];
  }
  for (const [layer, row] of best.entries()) rows[layer] = row;
}

function crossings(rows: readonly Item[][]): number {
  let count = 0;
  for (const [layer, row] of rows.entries()) {
    const ranks = new Map((rows[layer + 1] ?? []).map((item, rank) => [item, rank]));
    const steps = row.flatMap((item, rank) => item.after.map((next) => [rank, ranks.get(next) ?? 0] as const));
    for (const [index, [a, b]] of steps.entries()) {
      for (const [c, d] of steps.slice(index + 1)) if ((a - c) * (b - d) < 0) count += 1;
    }
  }
  return count;
}

/** Brings each item as near as there is room to the middle of its neighbours. */
function place(rows: readonly Item[][]): void {
  for (const row of rows) settle(row, (item) => item.y);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const row of forward ? rows : rows.toReversed()) {
      settle(row, (item) => {
        const beside = forward ? item.before : item.after;
        return beside.length === 0 ? item.y : beside.reduce((sum, { y }) => sum + y, 0) / beside.length;
      });
    }
  }
}

/**
 * Puts the items of a layer where they wish to be, in their order and without overlap; items that press against each
 * other share the distance to their wishes (least squares of an ordered sequence).
 */
function settle(row: readonly Item[], wish: (item: Item) => number): void {
  let offset = 0;
  const offsets = row.map((item, index) => {
    const above = row[index - 1];
    if (above !== undefined) offset += (above.height + item.height) / 2 + ROW_GAP;
    return offset;
  });
  // Without the distances that they need, the items only have to ascend: blocks that do not are merged.
  const blocks: { sum: number; count: number }[] = [];
  for (const [index, item] of row.entries()) {
    let block = { sum: wish(item) - (offsets[index] ?? 0), count: 1 };
    for (;;) {
      const above = blocks.at(-1);
      if (above === undefined || above.sum / above.count < block.sum / block.count) break;
      blocks.pop();
      block = { sum: above.sum + block.sum, count: above.count + block.count };
    }
    blocks.push(block);
  }
  let index = 0;
  for (const { sum, count } of blocks) {
    for (let member = 0; member < count; member += 1, index += 1) {
      const item = row[index];
      if (item !== undefined) item.y = sum / count + (offsets[index] ?? 0);
    }
  }
}

/** The course of an edge: from port to port, and straight through each layer that it passes. */
function pointsOf(path: readonly Item[], paths: readonly (readonly Item[])[], sizes: Sizes): Point[] {
  const [first, last] = [path[0], path.at(-1)];
  if (first === undefined || last === undefined) return [];
  const out = paths.filter((other) => other[0] === first);
  const into = paths.filter((other) => other.at(-1) === last);
  const start = { x: left(first.layer, sizes) + sizes.boxWidth, y: port(first, path, out, (of) => of[1]) };
  const end = { x: left(last.layer, sizes), y: port(last, path, into, (of) => of.at(-2)) };
  const bends = path.slice(1, -1).flatMap(({ layer, y }) => [
    { x: left(layer, sizes), y },
    { x: left(layer, sizes) + sizes.boxWidth, y },
  ]);
  return [start, ...bends, end];
}

/** The height at which an edge meets a box: the edges of a side are spread around its middle, in the order of where they come from or go to. */
function port(
  item: Item,
  path: readonly Item[],
  ofSide: readonly (readonly Item[])[],
  neighbour: (path: readonly Item[]) => Item | undefined,
): number {
  const sorted = ofSide.toSorted((a, b) => (neighbour(a)?.y ?? 0) - (neighbour(b)?.y ?? 0));
  return item.y + (sorted.indexOf(path) - (sorted.length - 1) / 2) * PORT_GAP;
}

/** An edge as an SVG path: a curve from layer to layer. */
export function linePath(points: readonly Point[], { straight }: Sizes): string {
  const [start, ...rest] = points;
  if (start === undefined) return "";
  let path = `M${start.x} ${start.y}`;
  let from = start;
  for (const [index, to] of rest.entries()) {
    // Points come in pairs: across a gap, then straight past the boxes of a layer.
    const isGap = index % 2 === 0;
    const bend = isGap ? to.x - straight : from.x;
    const middle = (from.x + bend) / 2;
    if (isGap) path += ` C${middle} ${from.y} ${middle} ${to.y} ${bend} ${to.y}`;
    path += ` L${to.x} ${to.y}`;
    from = to;
  }
  return path;
}

/** The head of an edge's arrow as an SVG path. */
export function arrowHead(points: readonly Point[]): string {
  const end = points.at(-1);
  return end === undefined ? "" : `M${end.x} ${end.y} l${-HEAD} ${-HEAD / 2} v${HEAD} z`;
}
