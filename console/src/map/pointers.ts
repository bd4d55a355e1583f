/** Turns pointers and the wheel over a surface into what they mean: drag, zoom, hover, tap. */
import { useEffect, useRef } from "preact/hooks";

export interface Gestures {
  drag: (right: number, down: number) => void;
  /** Positive steps come closer; (left, top) stays where it is. */
  zoom: (steps: number, left: number, top: number) => void;
  hover: (left: number, top: number) => void;
  leave: () => void;
  tap: (left: number, top: number) => void;
}

export interface PointerHandlers {
  onPointerDown: (event: PointerEvent) => void;
  onPointerMove: (event: PointerEvent) => void;
  onPointerUp: (event: PointerEvent) => void;
  onPointerCancel: (event: PointerEvent) => void;
  onPointerLeave: () => void;
}

/** A press that moves less than this is a tap. */
const TAP_SLACK_PX = 5;
const WHEEL_STEPS_PER_PX = 1 / 240;
const WHEEL_LINE_PX = 20;

type Position = [left: number, top: number];

export function usePointers(surface: { current: HTMLElement | null }, gestures: Gestures): PointerHandlers {
  const down = useRef(new Map<number, Position>());
  const travelled = useRef(0);
  const current = useRef(gestures);
  useEffect(() => {
    current.current = gestures;
  });

  useEffect(() => {
    const element = surface.current;
    if (element === null) return;
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? event.deltaY * WHEEL_LINE_PX : event.deltaY;
      current.current.zoom(-pixels * WHEEL_STEPS_PER_PX, event.offsetX, event.offsetY);
    };
    // Not passive: the page must not scroll under the map.
    element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      element.removeEventListener("wheel", wheel);
    };
  }, [surface]);

  const ended = (event: PointerEvent): void => {
    const wasAlone = down.current.size === 1;
    if (!down.current.delete(event.pointerId)) return;
    if (event.type === "pointerup" && wasAlone && travelled.current < TAP_SLACK_PX) {
      gestures.tap(event.offsetX, event.offsetY);
    }
  };

  return {
    onPointerDown: (event) => {
      if (event.button !== 0) return;
      if (event.currentTarget instanceof Element) event.currentTarget.setPointerCapture(event.pointerId);
      if (down.current.size === 0) travelled.current = 0;
      down.current.set(event.pointerId, [event.offsetX, event.offsetY]);
    },
    onPointerMove: (event) => {
      const before = down.current.get(event.pointerId);
      const here: Position = [event.offsetX, event.offsetY];
      if (before === undefined) {
        gestures.hover(...here);
        return;
      }
      const other = [...down.current].find(([id]) => id !== event.pointerId)?.[1];
      down.current.set(event.pointerId, here);
      travelled.current += distance(before, here);
      if (other === undefined) {
        if (travelled.current >= TAP_SLACK_PX) gestures.drag(here[0] - before[0], here[1] - before[1]);
      } else {
        const steps = Math.log2(Math.max(distance(here, other), 1) / Math.max(distance(before, other), 1));
        gestures.zoom(steps, (here[0] + other[0]) / 2, (here[1] + other[1]) / 2);
      }
    },
    onPointerUp: ended,
    onPointerCancel: ended,
    onPointerLeave: () => {
      if (down.current.size === 0) gestures.leave();
    },
  };
}

function distance(a: Position, b: Position): number {
  return Math.hypot(a[0] - b[0], a[1] - b[1]);
}
