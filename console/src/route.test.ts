import { describe, expect, it } from "vitest";
import { entitiesParams, entitiesPlace } from "./pages/entities-place";
import { href, placeOf } from "./route";

describe("an address", () => {
  it.each([
    ["/", "overview"],
    ["/entities", "entities"],
    ["/entities/", "entities"],
    ["/query?q=SELECT+*", "query"],
    ["/elsewhere", "unknown"],
  ])("%s is the page %s", (address, page) => {
    expect(placeOf(new URL(address, "http://console")).page).toBe(page);
  });

  it("leaves out what was not chosen", () => {
    expect(href("query", { chart: "" }, { q: "" })).toBe("/query");
    expect(href("overview", { tenant: "" })).toBe("/");
  });
});

describe("the address of a query", () => {
  it("keeps the text behind the #, whatever stands in it", () => {
    const text = "SELECT a\nFROM \"b\" WHERE c = '100 % #1 & ü'";
    const address = href("query", { chart: "a" }, { q: text });
    const { page, params, fragment } = placeOf(new URL(address, "http://console"));
    expect([page, params.get("chart"), params.get("q"), fragment.get("q")]).toEqual(["query", "a", null, text]);
  });
});

describe("the address of the entities page", () => {
  it("brings back everything that was chosen", () => {
    const place = entitiesPlace(
      new URLSearchParams(
        "tenant=acme&type=T&id=a,b&page=3&limit=100&entity=urn:x&entity_type=T&history=temp&span=week&list=subscriptions&subscription=1a&map=hidden&at=40.7000,-73.9000,9.50",
      ),
    );
    expect(place).toMatchObject({ tenant: "acme", type: "T", id: "a,b", page: 3, limit: 100, map: "hidden" });
    expect(place).toMatchObject({ list: "subscriptions", subscription: "1a", history: "temp", span: "week" });
    expect(place.selected).toEqual({ id: "urn:x", type: "T" });
    expect(place.view?.zoom).toBe(9.5);
    expect(entitiesPlace(new URLSearchParams(entitiesParams(place)))).toEqual(place);
  });

  it.each(["list=x&span=x", "page=-1&limit=7&at=91,0,3", "page=x&limit=&at=1,2", "at=1,2,99", ""])(
    "with nonsense (%s) is the plain page",
    (query) => {
      const place = entitiesPlace(new URLSearchParams(query));
      expect(place).toEqual(entitiesPlace(new URLSearchParams()));
      expect(href("entities", entitiesParams(place))).toBe("/entities");
    },
  );
});
