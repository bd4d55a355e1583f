import { describe, expect, it } from "vitest";
import { decodeEntity, entityKey, entityOf, escapePattern, isSortable, locationOf, measuredAt } from "./entities";

const station = {
  id: "urn:ngsi-ld:Device:EWR",
  type: "WeatherStation",
  temp: {
    type: "Number",
    value: 39.02,
    metadata: { TimeInstant: { type: "DateTime", value: "2013-01-01T06:00:00Z" } },
  },
  humid: {
    type: "Number",
    value: null,
    metadata: { TimeInstant: { type: "DateTime", value: "2013-01-01T07:00:00Z" } },
  },
  location: { type: "geo:json", value: { type: "Point", coordinates: [-74.17, 40.69] }, metadata: {} },
};

function withLocation(type: string, value: unknown): ReturnType<typeof decodeEntity> {
  return decodeEntity({ ...station, location: { type, value, metadata: {} } }, "answer");
}

describe("an entity", () => {
  it("has its attributes in the server's order", () => {
    const entity = decodeEntity(station, "answer");
    expect([...entity.attributes.keys()]).toEqual(["temp", "humid", "location"]);
    expect(entity.attributes.get("humid")?.value).toBeNull();
  });

  it("is refused if an attribute has no value", () => {
    expect(() => decodeEntity({ id: "a", type: "b", c: { type: "Number" } }, "answer")).toThrow("answer.c.value");
  });

  it("has the time of its latest attribute", () => {
    expect(measuredAt(decodeEntity(station, "answer"))).toBe(Date.parse("2013-01-01T07:00:00Z"));
    expect(measuredAt(decodeEntity({ id: "a", type: "b" }, "answer"))).toBeNull();
  });

  it("has the place of its GeoJSON point", () => {
    expect(locationOf(decodeEntity(station, "answer"))).toEqual([-74.17, 40.69]);
  });

  it("has the place of its geo:point", () => {
    expect(locationOf(withLocation("geo:point", "40.69, -74.17"))).toEqual([-74.17, 40.69]);
  });

  it.each([
    ["geo:point", "91, 0"],
    ["geo:point", "40.69"],
    ["geo:point", "1, 2, 3"],
    ["geo:point", "here, there"],
    ["Text", "1, 2"],
    ["geo:json", { type: "Polygon", coordinates: [] }],
    ["geo:json", { type: "Point", coordinates: ["1", "2"] }],
    ["geo:json", { type: "Point", coordinates: [181, 0] }],
    ["geo:json", { type: "Point", coordinates: [0] }],
    ["geo:json", null],
    ["StructuredValue", { type: "Point", coordinates: [1, 2] }],
  ])("is nowhere with a location of %s %j", (type, value) => {
    expect(locationOf(withLocation(type, value))).toBeNull();
  });

  it("is identified by id and type together", () => {
    expect(entityOf(entityKey({ id: 'a "b', type: "c" }))).toEqual({ id: 'a "b', type: "c" });
    expect(entityKey({ id: "a b", type: "c" })).not.toBe(entityKey({ id: "a", type: "b c" }));
  });
});

describe("a list of entities", () => {
  it.each(["a.b", "a+b*", "(x|y)", "[0-9]{2}", "^start$", "back\\slash", "urn:ngsi-ld:Room:1"])(
    "finds the text %s and nothing else by its pattern",
    (text) => {
      const pattern = new RegExp(escapePattern(text));
      expect(pattern.test(`before ${text} behind`)).toBe(true);
      expect(pattern.test(text.slice(1))).toBe(false);
    },
  );

  it.each([
    ["temperature", true],
    ["temp!", true],
    ["!temp", false],
    ["a,b", false],
    ["dateModified", false],
    ["geo:distance", false],
  ])("can be sorted by the attribute %s: %s", (name, expected) => {
    expect(isSortable(name)).toBe(expected);
  });
});
