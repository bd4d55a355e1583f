/** A map of things with a place: drag, wheel, pinch or keys move it; hovering and choosing are told to the owner. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { Point } from "../api/entities";
import { counted } from "../format";
import { colourReader, useColoursVersion } from "../theme";
import { type Colours, markerAt, type Marker, paint } from "./draw";
import { type Detail, detailAt, type Land, loadLand } from "./land";
import { fitting, panned, type Size, scaleBar, toWorld, type View, zoomed } from "./projection";
import { usePointers } from "./pointers";

export interface Item {
  key: string;
  label: string;
  point: Point;
}

export interface MapProps {
  items: readonly Item[];
  /** The item under the pointer, here or in a list beside the map. */
  hovered: string | null;
  selected: string | null;
  onHover: (key: string | null) => void;
  onSelect: (key: string) => void;
  /** Where the user has moved the map; null while it follows its items. */
  view: View | null;
  onView: (view: View | null) => void;
}

const PAN_STEP_PX = 80;
const SCALE_BAR_MAX_PX = 110;

export function WorldMap(props: MapProps): ComponentChildren {
  const { items, hovered, selected, onHover, onSelect, onView } = props;
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const size = useSize(frame);
  const points = useMemo(() => items.map((item) => item.point), [items]);
  const view = useMemo(() => props.view ?? fitting(points, size), [props.view, points, size]);
  const land = useLand(detailAt(view.zoom));
  const colours = useMapColours(canvas);
  const markers = useMemo(() => items.map(marker), [items]);

  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || colours === null || size.width === 0) return;
    const ratio = window.devicePixelRatio;
    context.canvas.width = Math.round(size.width * ratio);
    context.canvas.height = Math.round(size.height * ratio);
    context.scale(ratio, ratio);
    const strong = new Set([hovered, selected].filter((key) => key !== null));
    paint(context, { view, size, land, markers, strong, colours });
  }, [view, size, land, markers, hovered, selected, colours]);

  const under = (left: number, top: number): string | null => markerAt({ view, size, markers }, left, top)?.key ?? null;
  const pointers = usePointers(canvas, {
    drag: (right, down) => {
      onView(panned(view, size, right, down));
    },
    zoom: (steps, left, top) => {
      onView(zoomed(view, size, steps, left, top));
    },
    hover: (left, top) => {
      onHover(under(left, top));
    },
    leave: () => {
      onHover(null);
    },
    tap: (left, top) => {
      const key = under(left, top);
      if (key !== null) onSelect(key);
    },
  });

  const zoom = (steps: number): void => {
    onView(zoomed(view, size, steps, size.width / 2, size.height / 2));
  };
  const keyed = (event: KeyboardEvent): void => {
    const moves: Record<string, () => void> = {
      ArrowLeft: () => {
        onView(panned(view, size, PAN_STEP_PX, 0));
      },
      ArrowRight: () => {
        onView(panned(view, size, -PAN_STEP_PX, 0));
      },
      ArrowUp: () => {
        onView(panned(view, size, 0, PAN_STEP_PX));
      },
      ArrowDown: () => {
        onView(panned(view, size, 0, -PAN_STEP_PX));
      },
      "+": () => {
        zoom(1);
      },
      "=": () => {
        zoom(1);
      },
      "-": () => {
        zoom(-1);
      },
      "0": () => {
        onView(null);
      },
    };
    const move = moves[event.key];
    if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    move();
  };

  const bar = scaleBar(view, SCALE_BAR_MAX_PX);
  return (
    <div class="map" ref={frame}>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label={`Map of ${counted(items.length, "entity", "entities")}`}
        aria-description="Arrow keys move the map, plus and minus zoom, zero shows all entities"
        onKeyDown={keyed}
        class={hovered === null ? "" : "pointing"}
        {...pointers}
      />
      <div class="map-buttons">
        <button
          type="button"
          aria-label="Zoom in"
          title="Zoom in (+)"
          onClick={() => {
            zoom(1);
          }}
        >
          +
        </button>
        <button
          type="button"
          aria-label="Zoom out"
          title="Zoom out (−)"
          onClick={() => {
            zoom(-1);
          }}
        >
          −
        </button>
        <button
          type="button"
          aria-label="Show all entities"
          title="Show all (0)"
          aria-pressed={props.view === null}
          onClick={() => {
            onView(null);
          }}
        >
          <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
            <path d="M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4" fill="none" stroke="currentColor" stroke-width="1.6" />
          </svg>
        </button>
      </div>
      <div class="map-scale" aria-hidden="true" style={{ width: `${bar.pixels}px` }}>
        {bar.label}
      </div>
      <div class="map-credit">Natural Earth</div>
    </div>
  );
}

function marker({ key, label, point }: Item): Marker {
  const [x, y] = toWorld(point);
  return { key, label, x, y };
}

function useSize(frame: { current: HTMLElement | null }): Size {
  const [size, setSize] = useState<Size>({ width: 0, height: 0 });
  useEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => {
      setSize({ width: element.clientWidth, height: element.clientHeight });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
    };
  }, [frame]);
  return size;
}

/** The outlines wanted, or the ones there were before while these are on their way. */
function useLand(detail: Detail): Land | null {
  const [land, setLand] = useState<Land | null>(null);
  useEffect(() => {
    let wanted = true;
    loadLand(detail).then(
      (loaded) => {
        if (wanted) setLand(loaded);
      },
      // Without outlines the map still shows its graticule and markers.
      () => undefined,
    );
    return () => {
      wanted = false;
    };
  }, [detail]);
  return land;
}

function useMapColours(canvas: { current: HTMLCanvasElement | null }): Colours | null {
  const version = useColoursVersion();
  const [colours, setColours] = useState<Colours | null>(null);
  useEffect(() => {
    const element = canvas.current?.parentElement;
    if (!element) return;
    const read = colourReader(element);
    setColours({
      water: read("--map-water"),
      land: read("--map-land"),
      shore: read("--map-shore"),
      graticule: read("--map-graticule"),
      text: read("--text"),
      halo: read("--surface"),
      marker: read("--accent"),
      strong: read("--series-3"),
    });
  }, [canvas, version]);
  return colours;
}
