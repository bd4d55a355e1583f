/**
 * Paint at most once per frame, however often something changes.
 *
 * A page that nobody sees gets no frames; `BACKGROUND_MS` later the change is handed on all the same, so that
 * counters go on in a hidden tab.
 */
const BACKGROUND_MS = 1_000;

export class FramePainter {
  readonly #paint: () => void;
  #frame = 0;
  #timer = 0;
  #isEnded = false;

  constructor(paint: () => void) {
    this.#paint = paint;
  }

  /** Something changed. */
  request(): void {
    if (this.#frame !== 0 || this.#isEnded) return;
    this.#frame = requestAnimationFrame(this.#run);
    this.#timer = window.setTimeout(this.#run, BACKGROUND_MS);
  }

  /** Nobody watches any more: nothing is painted from now on, whatever changes. */
  end(): void {
    this.#isEnded = true;
    this.#cancel();
  }

  #cancel(): void {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    this.#frame = 0;
  }

  readonly #run = (): void => {
    this.#cancel();
    this.#paint();
  };
}
