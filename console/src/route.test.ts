import { describe, expect, it } from "vitest";
import { entitiesParams, entitiesPlace } from "./pages/entities-place";
import { jobsParams, jobsPlace } from "./pages/jobs-place";
import { storeParams, storePlace } from "./pages/store-place";
import { href, placeOf } from "./route";

describe("an address", () => {
  it.each([
    ["/", "overview"],
    ["/entities", "entities"],
    ["/entities/", "entities"],
    ["/query?q=SELECT+*", "query"],
    ["/jobs?job=j1", "jobs"],
    ["/store?bucket=b", "store"],
    ["/elsewhere", "unknown"],
  ])("%s is the page %s", (address, page) => {
    expect(placeOf(new URL(address, "http://console")).page).toBe(page);
  });

  it("leaves out settings that were not chosen", () => {
    expect(href("query", { chart: "" }, { q: "" })).toBe("/query");
    expect(href("overview", { tenant: "" })).toBe("/");
  });
});

describe("the address of a query", () => {
  it("keeps any text behind the #", () => {
    const text = "SELECT a\nFROM \"b\" WHERE c = '100 % #1 & ü'";
    const address = href("query", { chart: "a" }, { q: text });
    const { page, params, fragment } = placeOf(new URL(address, "http://console"));
    expect([page, params.get("chart"), params.get("q"), fragment.get("q")]).toEqual(["query", "a", null, text]);
  });
});

describe("the address of the entities page", () => {
  it("restores every choice", () => {
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

describe("the address of the page of jobs", () => {
  it("restores every choice", () => {
    const place = jobsPlace(
      new URLSearchParams("tenant=acme&state=failed&name=hot&page=2&limit=25&job=j1&edge=in,out&rate=100"),
    );
    expect(place).toMatchObject({ tenant: "acme", state: "failed", name: "hot", page: 2, limit: 25, job: "j1" });
    expect(place).toMatchObject({ edge: { from: "in", to: "out" }, rate: 100 });
    expect(jobsPlace(new URLSearchParams(jobsParams(place)))).toEqual(place);
  });

  it.each(["state=x&page=0&limit=3&edge=in&rate=7", "edge=,out&rate=x", ""])(
    "with nonsense (%s) is the plain page",
    (query) => {
      const place = jobsPlace(new URLSearchParams(query));
      expect(place).toEqual(jobsPlace(new URLSearchParams()));
      expect(href("jobs", jobsParams(place))).toBe("/jobs");
    },
  );
});

describe("the address of the page of the store", () => {
  it("restores every choice, bytes that are no text too", () => {
    const place = storePlace(
      new URLSearchParams("tenant=acme&bucket=b&prefix=a%252F&view=all&start=%25ff&limit=25&key=a%252Fb%2525"),
    );
    expect(place).toMatchObject({ tenant: "acme", bucket: "b", prefix: "a%2F", view: "all", start: "%ff", limit: 25 });
    expect(place.key).toBe("a%2Fb%25");
    expect(storePlace(new URLSearchParams(storeParams(place)))).toEqual(place);
  });

  it.each(["view=x&limit=3", ""])("with nonsense (%s) is the plain page", (query) => {
    const place = storePlace(new URLSearchParams(query));
    expect(place).toEqual(storePlace(new URLSearchParams()));
    expect(href("store", storeParams(place))).toBe("/store");
  });
});
