import { describe, expect, it } from "vitest";
import { roleRefusal } from "./caller";

describe("what takes a role", () => {
  const reader = { name: "shop", tenant: "acme", roles: ["reader"] };

  it.each([
    [null, "admin", undefined],
    [reader, "reader", undefined],
    [reader, "admin", "This takes the role admin; your login has reader"],
    [{ ...reader, roles: [] }, "writer", "This takes the role writer; your login has none"],
  ] as const)("of caller %j: %s", (caller, role, refusal) => {
    expect(roleRefusal(caller, role)).toBe(refusal);
  });
});
