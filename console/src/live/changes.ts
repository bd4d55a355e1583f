/** Which cells of a live table have just changed, so that the table can point them out for a moment. */
import { useEffect, useState } from "preact/hooks";
import { type Entity, entityKey } from "../api/entities";

/** Cell → how often it has changed since the page was opened. */
export type Changes = ReadonlyMap<string, number>;

interface Seen {
  values: ReadonlyMap<string, string>;
  changes: Changes;
}

export function cellKey(entity: Entity, attribute: string): string {
  return `${entityKey(entity)}/${attribute}`;
}

/** What is remembered after `entities` have been seen. What was not on the screen before has not changed. */
export function observe(before: Seen, entities: readonly Entity[]): Seen {
  const values = new Map<string, string>();
  const changes = new Map<string, number>();
  for (const entity of entities) {
    for (const [name, attribute] of entity.attributes) {
      const cell = cellKey(entity, name);
      const value = JSON.stringify(attribute.value);
      const known = before.values.get(cell);
      const count = before.changes.get(cell) ?? 0;
      values.set(cell, value);
      if (known !== undefined && known !== value) changes.set(cell, count + 1);
      else if (count > 0) changes.set(cell, count);
    }
  }
  return { values, changes };
}

export const NOTHING_SEEN: Seen = { values: new Map(), changes: new Map() };

export function useChanges(entities: readonly Entity[]): Changes {
  const [seen, setSeen] = useState(NOTHING_SEEN);
  useEffect(() => {
    setSeen((before) => observe(before, entities));
  }, [entities]);
  return seen.changes;
}

/** The class of a changed cell. Two equal animations take turns, because the same one would not start again. */
export function changeClass(count: number | undefined): string {
  if (count === undefined) return "";
  return count % 2 === 0 ? "changed-even" : "changed-odd";
}
