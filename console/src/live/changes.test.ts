import { describe, expect, it } from "vitest";
import { decodeEntity, type Entity } from "../api/entities";
import type { Json } from "../api/decode";
import { cellKey, changeClass, NOTHING_SEEN, observe } from "./changes";

function entity(id: string, temp: Json): Entity {
  return decodeEntity({ id, type: "T", temp: { type: "Number", value: temp, metadata: {} } }, "answer");
}

describe("a live table", () => {
  const cell = cellKey(entity("a", 1), "temp");

  it("points out a value that has changed, each time anew", () => {
    const once = observe(observe(NOTHING_SEEN, [entity("a", 1)]), [entity("a", 2)]);
    const twice = observe(once, [entity("a", 3)]);
    expect(once.changes.get(cell)).toBe(1);
    expect(twice.changes.get(cell)).toBe(2);
    expect(changeClass(1)).not.toBe(changeClass(2));
  });

  it("does not start again for a value that stayed", () => {
    const changed = observe(observe(NOTHING_SEEN, [entity("a", 1)]), [entity("a", 2)]);
    expect(observe(changed, [entity("a", 2)]).changes.get(cell)).toBe(1);
  });

  it("does not mark a new row as a change", () => {
    expect(observe(observe(NOTHING_SEEN, []), [entity("a", 1)]).changes.size).toBe(0);
    expect(changeClass(undefined)).toBe("");
  });
});
