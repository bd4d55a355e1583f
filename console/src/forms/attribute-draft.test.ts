import { describe, expect, it } from "vitest";
import type { Json } from "../api/decode";
import { Refused } from "../api/http";
import { type AttributeDraft, draftOf, NEW_ATTRIBUTE, typedValue, withKind } from "./attribute-draft";
import { entityFaults, entityOf, pastedEntity } from "./entity-draft";
import { faultOf, FieldError } from "./fault";

const attribute = (type: string, value: Json): Parameters<typeof draftOf>[1] => ({ type, value, metadata: new Map() });

/** The field and the words of the error that `act` throws. */
function thrown(act: () => unknown): [string, string] {
  try {
    act();
  } catch (cause) {
    if (cause instanceof FieldError) return [cause.field, cause.message];
    throw cause;
  }
  throw new Error("nothing was thrown");
}

describe("the draft of an attribute", () => {
  it.each<[string, Json]>([
    ["Number", -2.5],
    ["Text", "a b"],
    ["DateTime", "2026-01-01T00:00:00.000Z"],
    ["Boolean", false],
    ["None", null],
    ["StructuredValue", { a: [1, { b: "c" }] }],
    ["geo:json", { type: "Point", coordinates: [-73.5, 40.25] }],
    [
      "geo:json",
      {
        type: "LineString",
        coordinates: [
          [1, 2],
          [3, 4],
        ],
      },
    ],
    ["geo:point", "40.4,-3.7"],
  ])("of a %s gives back what was there: %j", (type, value) => {
    expect(typedValue(draftOf("a", attribute(type, value)))).toEqual({ type, value });
  });

  it.each<[Partial<AttributeDraft>, string, string]>([
    [{ kind: "number", number: "" }, "value", "'' is not a number"],
    [{ kind: "number", number: "1,5" }, "value", "'1,5' is not a number: write it with a point"],
    [{ kind: "number", number: "1e999" }, "value", "'1e999'"],
    [{ kind: "json", json: "{a}" }, "value", "this is not JSON: "],
    [{ kind: "place", latitude: "91", longitude: "0" }, "latitude", "from -90 to 90"],
    [{ kind: "place", latitude: "1", longitude: "x" }, "longitude", "from -180 to 180"],
  ])("%j is refused at the field %s", (change, field, words) => {
    const [found, message] = thrown(() => typedValue({ ...NEW_ATTRIBUTE, name: "a", ...change }));
    expect([found, message.includes(words)]).toEqual([field, true]);
  });

  it("takes the type of another kind, unless somebody has given one", () => {
    expect(withKind(NEW_ATTRIBUTE, "place").type).toBe("geo:json");
    expect(withKind({ ...NEW_ATTRIBUTE, type: "DateTime" }, "text").type).toBe("DateTime");
    expect(typedValue({ ...NEW_ATTRIBUTE, kind: "boolean", type: " " })).toEqual({ type: "Boolean", value: true });
  });
});

describe("a new entity", () => {
  const temperature = { ...NEW_ATTRIBUTE, name: " temp.1 ", number: "21.5" };

  it("is normalized", () => {
    expect(entityOf({ id: " r1 ", type: "", attributes: [temperature] })).toEqual({
      id: "r1",
      "temp.1": { type: "Number", value: 21.5 },
    });
  });

  it("has an id, and attributes with names of their own and values", () => {
    expect(thrown(() => entityOf({ id: " ", type: "Room", attributes: [] }))[0]).toBe("id");
    const draft = { id: "r1", type: "Room", attributes: [temperature, temperature] };
    expect(thrown(() => entityOf(draft))).toEqual(["1.name", "'temp.1' is taken: give each attribute its own name"]);
    expect(thrown(() => entityOf({ ...draft, attributes: [NEW_ATTRIBUTE] }))[0]).toBe("0.name");
    expect(thrown(() => entityOf({ ...draft, attributes: [{ ...temperature, number: "x" }] }))[0]).toBe("0.value");
  });

  it("may be pasted with bare values among normalized ones", () => {
    const text = '{"id": "r1", "type": "Room", "a": 1, "b": {"value": 2, "type": "Number"}, "c": {"d": 3}}';
    expect(pastedEntity(text)).toEqual({
      id: "r1",
      type: "Room",
      a: { value: 1 },
      b: { value: 2, type: "Number" },
      c: { value: { d: 3 } },
    });
    expect(thrown(() => pastedEntity("[]"))[0]).toBe("json");
    expect(thrown(() => pastedEntity("{"))[1]).toContain("this is not JSON");
  });

  it.each([
    ["entity id 'a b' is no identifier: …", "id"],
    ["entity 'r1' of type 'Room' exists already: …", "id"],
    ["entity type 'a b' is no identifier: …", "type"],
    ["attribute name 'temp.1' is no identifier: …", "0.name"],
    ["'temp.1' cannot be an attribute's name: …", "0.name"],
    ["the type of attribute 'temp.1' 'a b' is no identifier: …", "0.type"],
    ["the value of attribute 'temp.1' contains 'a<b': …", "0.value"],
    ["the value of attribute 'tempX1' contains 'a<b': …", ""],
    ["the disk is full", ""],
  ])("that the server refuses because %s is marked at '%s'", (words, field) => {
    expect(faultOf(new Refused(400, words, []), entityFaults([temperature])).field).toBe(field);
  });
});
