import { describe, expect, it } from "vitest";
import type { PageName } from "../route";
import { limitsText, mayOpen, refusalOf } from "./caller";

describe("what takes a role", () => {
  const reader = { name: "shop", tenant: "acme", roles: ["reader"], limits: null };

  it.each([
    [null, "admin", undefined],
    [reader, "reader", undefined],
    [reader, "admin", "This takes the role admin; your login has reader"],
    [{ ...reader, roles: [] }, "writer", "This takes the role writer; your login has none"],
  ] as const)("of caller %j: %s", (caller, role, refusal) => {
    expect(refusalOf(caller, role, "whole")).toBe(refusal);
  });
});

describe("a login with limits", () => {
  const limits = { topics: ["orders", "returns-"], types: [], keys: ["shop/img/"] };
  const caller = { name: "shop", tenant: "acme", roles: ["reader", "admin"], limits };

  it("has the pages of what it is good for", () => {
    const pages: readonly PageName[] = [
      "overview",
      "devices",
      "entities",
      "topics",
      "query",
      "jobs",
      "store",
      "access",
    ];
    expect(pages.filter((page) => mayOpen(caller, page))).toEqual(["topics", "store"]);
    expect(pages.filter((page) => mayOpen({ ...caller, limits: null }, page))).toEqual(pages);
    expect(pages.filter((page) => mayOpen(null, page))).toEqual(pages);
  });

  it("does nothing that concerns its whole tenant, and is told why", () => {
    expect(limitsText(limits)).toBe("topics orders… or returns-…, keys shop/img/…");
    expect(refusalOf(caller, "admin", "part")).toBe(undefined);
    expect(refusalOf(caller, "admin", "whole")).toBe(
      "This takes a login without limits; yours is good for topics orders… or returns-…, keys shop/img/…",
    );
  });
});
