import { describe, expect, it } from "vitest";
import { Refused } from "./http";
import { findingsOf, holderOf } from "./job-documents";

describe("a refusal of a document", () => {
  const finding = { path: "name", line: 3, column: 1, rule: "unknown_key", message: "no key" };

  it("has findings if it is about the document", () => {
    const cause = new Refused(422, "1 fault", [], { findings: [finding] });
    expect(findingsOf(cause)).toEqual([
      { path: "name", bundle: null, line: 3, column: 1, value: null, message: "no key", nearest: null },
    ]);
    expect(holderOf(cause)).toBeNull();
  });

  it.each([
    new Refused(409, "taken", [], { findings: [finding] }),
    new Refused(422, "plan", [], { detail: "no plan" }),
    new Refused(422, "no JSON", []),
    new Error("unreachable"),
  ])("has none if it is %s", (cause) => {
    expect(findingsOf(cause)).toBeNull();
  });

  it("names the job that runs under the name", () => {
    expect(holderOf(new Refused(409, "taken", [], { code: "job_name_taken", job: "j1" }))).toBe("j1");
    expect(holderOf(new Refused(409, "hash", [], { code: "incorrect_job_hash" }))).toBeNull();
    expect(holderOf(new Refused(503, "full", [], { job: "j1" }))).toBeNull();
  });
});
