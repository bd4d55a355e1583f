import { describe, expect, it } from "vitest";
import { limitsText } from "../parts/tenants-view";
import { tokenOf } from "../parts/create-token";
import { scopeText } from "../parts/tokens-view";
import { decodeTenant, decodeToken } from "./access";

describe("a tenant", () => {
  it("has the limits that are set, and none for what is missing or -1", () => {
    const tenant = decodeTenant(
      {
        id: "acme",
        enabled: false,
        alias: "a",
        "trusted-ca": [{}, {}],
        "registration-limits": { "max-devices": 1000, "max-credentials-per-device": -1 },
        "resource-limits": { "max-connections": -1, "max-messages-per-second": 50 },
      },
      "answer",
    );
    expect(tenant).toMatchObject({ id: "acme", alias: "a", enabled: false, trustAnchors: 2 });
    expect(limitsText(tenant)).toBe("1,000 devices, 50 messages/s");
  });

  it("is enabled and unlimited unless it says otherwise", () => {
    const tenant = decodeTenant({ id: "acme" }, "answer");
    expect(tenant).toMatchObject({ alias: null, enabled: true, trustAnchors: 0 });
    expect(limitsText(tenant)).toBeNull();
  });
});

describe("a token", () => {
  it("says what it is limited to", () => {
    const token = decodeToken(
      {
        name: "n",
        tenant: "*",
        roles: ["reader"],
        created: "2026-01-01T00:00:00Z",
        created_by: "x",
        topics: ["a", "b"],
      },
      "answer",
    );
    expect(token.expires).toBeNull();
    expect(scopeText(token)).toBe("topics a*, b*");
    const none = { topics: [], types: [], keys: [], groups: [], transactional_ids: [] };
    expect(scopeText({ ...none, types: ["Room"], keys: ["shop/img"] })).toBe("types Room*; keys shop/img*");
    const narrow = { ...none, topics: ["a"], groups: ["g-"], transactional_ids: ["t"] };
    expect(scopeText(narrow)).toBe("topics a*; groups g-*; transactional ids t*");
    expect(scopeText(none)).toBeNull();
  });
});

function form(fields: readonly (readonly [string, string])[]): FormData {
  const data = new FormData();
  for (const [name, value] of fields) data.append(name, value);
  return data;
}

describe("the form of a token", () => {
  it("asks for what was filled in only", () => {
    const fields = [
      ["name", " shop "],
      ["roles", "writer"],
      ["roles", "reader"],
      ["tenant", ""],
      ["topics", "orders, telemetry."],
      ["types", ""],
      ["keys", "shop/, photos/2026/"],
      ["lifetime", "90d"],
    ] as const;
    expect(tokenOf(form(fields))).toEqual({
      name: "shop",
      roles: ["reader", "writer"],
      topics: ["orders", "telemetry."],
      keys: ["shop/", "photos/2026/"],
      lifetime: "90d",
    });
    const every = tokenOf(form([...fields, ["every-tenant", "on"]]));
    expect(every.tenant).toBe("*");
  });

  it("wants a role", () => {
    expect(() => tokenOf(form([["name", "shop"]]))).toThrow("at least one role");
  });
});
