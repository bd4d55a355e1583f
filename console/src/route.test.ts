import { describe, expect, it } from "vitest";
import { accessParams, accessPlace } from "./pages/access-place";
import { entitiesParams, entitiesPlace } from "./pages/entities-place";
import { jobsParams, jobsPlace } from "./pages/jobs-place";
import { devicesParams, devicesPlace } from "./pages/devices-place";
import { storeParams, storePlace } from "./pages/store-place";
import { topicsParams, topicsPlace } from "./pages/topics-place";
import { href, placeOf } from "./route";

describe("an address", () => {
  it.each([
    ["/", "overview"],
    ["/entities", "entities"],
    ["/entities/", "entities"],
    ["/query?q=SELECT+*", "query"],
    ["/jobs?job=j1", "jobs"],
    ["/store?bucket=b", "store"],
    ["/devices?device=d", "devices"],
    ["/topics?topic=t", "topics"],
    ["/access", "access"],
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
      new URLSearchParams(
        "tenant=acme&state=failed&name=hot&page=2&limit=25&job=j1&edge=in,out&rate=100&new=job&copy=j2&keys=sum&key=d1",
      ),
    );
    expect(place).toMatchObject({ tenant: "acme", state: "failed", name: "hot", page: 2, limit: 25, job: "j1" });
    expect(place).toMatchObject({ edge: { from: "in", to: "out" }, rate: 100 });
    expect(place).toMatchObject({ draft: { copyOf: "j2", resumes: false }, keys: { node: "sum", key: "d1" } });
    expect(jobsPlace(new URLSearchParams(jobsParams(place)))).toEqual(place);
    const resuming = jobsPlace(new URLSearchParams("new=job&resume=j2"));
    expect(resuming.draft).toEqual({ copyOf: "j2", resumes: true });
    expect(href("jobs", jobsParams(resuming))).toBe("/jobs?new=job&resume=j2");
  });

  it.each(["state=x&page=0&limit=3&edge=in&rate=7", "edge=,out&rate=x&key=d1", "new=x&copy=j2", ""])(
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

describe("the address of the page of devices", () => {
  it("restores every choice", () => {
    const query = "tenant=acme&search=lamp&kind=gateways&state=disabled&order=seen&page=2&limit=200&device=d%3A1";
    const place = devicesPlace(new URLSearchParams(query));
    expect(place).toMatchObject({ text: "lamp", kind: "gateways", state: "disabled", order: "seen", device: "d:1" });
    expect(place).toMatchObject({ tenant: "acme", page: 2, limit: 200 });
    expect(devicesPlace(new URLSearchParams(devicesParams(place)))).toEqual(place);
  });

  it.each(["kind=x&state=x&order=x&page=0&limit=250", ""])("with nonsense (%s) is the plain page", (query) => {
    expect(href("devices", devicesParams(devicesPlace(new URLSearchParams(query))))).toBe("/devices");
  });
});

describe("the address of the page of topics", () => {
  it("restores every choice", () => {
    const query =
      "tenant=acme&search=o&topic=orders&partition=3&key=o-*&text=bolt&at=0:17,1:4&side=before&limit=25&mode=tail&record=3:7";
    const place = topicsPlace(new URLSearchParams(query));
    expect(place).toMatchObject({ topic: "orders", partition: "3", key: "o-*", text: "bolt", at: "0:17,1:4" });
    expect(place).toMatchObject({ side: "before", limit: 25, mode: "tail", record: "3:7" });
    expect(topicsPlace(new URLSearchParams(topicsParams(place)))).toEqual(place);
  });

  it.each(["partition=x&side=x&limit=3&mode=x&record=7", ""])("with nonsense (%s) is the plain page", (query) => {
    expect(href("topics", topicsParams(topicsPlace(new URLSearchParams(query))))).toBe("/topics");
  });
});

describe("the address of the page of access", () => {
  it("restores every choice", () => {
    const place = accessPlace(new URLSearchParams("tenant=acme&page=2&tokens=3&limit=100&name=shop"));
    expect(place).toEqual({ tenant: "acme", page: 2, tokens: 3, limit: 100, name: "shop" });
    expect(accessPlace(new URLSearchParams(accessParams(place)))).toEqual(place);
  });

  it.each(["page=0&tokens=x&limit=250", ""])("with nonsense (%s) is the plain page", (query) => {
    const place = accessPlace(new URLSearchParams(query));
    expect(place).toEqual(accessPlace(new URLSearchParams()));
    expect(href("access", accessParams(place))).toBe("/access");
  });
});
