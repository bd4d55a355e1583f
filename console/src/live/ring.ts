/** The newest `capacity` items, oldest first, and how many there have been. */
export class Ring<T> {
  readonly #slots: T[] = [];
  #next = 0;
  #pushed = 0;

  constructor(readonly capacity: number) {}

  push(item: T): void {
    this.#slots[this.#next] = item;
    this.#next = (this.#next + 1) % this.capacity;
    this.#pushed += 1;
  }

  /** How many items were ever pushed. */
  get pushed(): number {
    return this.#pushed;
  }

  /** How many items had to make room for newer ones. */
  get dropped(): number {
    return this.#pushed - this.#slots.length;
  }

  /** A copy that later pushes do not touch. */
  toArray(): T[] {
    return this.dropped === 0
      ? this.#slots.slice()
      : [...this.#slots.slice(this.#next), ...this.#slots.slice(0, this.#next)];
  }
}
