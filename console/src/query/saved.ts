/** Queries that somebody wants to find again, kept by this browser. */
import { array, object, string } from "../api/decode";

export interface SavedQuery {
  name: string;
  text: string;
}

/** More than this nobody finds again; the oldest make room. */
export const SAVED_MAX = 100;
const KEY = "millstream.queries";

const list = array(object<SavedQuery>({ name: string, text: string }));

export function loadSaved(storage: Pick<Storage, "getItem">): SavedQuery[] {
  try {
    return list(JSON.parse(storage.getItem(KEY) ?? "[]"), KEY);
  } catch {
    // Not written by this page, or by another version of it.
    return [];
  }
}

export function storeSaved(storage: Pick<Storage, "setItem">, saved: readonly SavedQuery[]): void {
  storage.setItem(KEY, JSON.stringify(saved));
}

/** The newest comes first; a name that is there already gets the new text. */
export function withSaved(saved: readonly SavedQuery[], query: SavedQuery): SavedQuery[] {
  return [query, ...without(saved, query.name)].slice(0, SAVED_MAX);
}

export function without(saved: readonly SavedQuery[], name: string): SavedQuery[] {
  return saved.filter((query) => query.name !== name);
}

/** A name to begin with: the first line of the query, cut. */
export function proposedName(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > 40 ? `${line.slice(0, 39)}…` : line;
}
