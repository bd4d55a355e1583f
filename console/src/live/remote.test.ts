import { describe, expect, it } from "vitest";
import { Refused, Unreachable } from "../api/http";
import { afterFailure, type Remote } from "./remote";

const live: Remote<number> = { kind: "live", value: 7, at: 100 };

describe("when asking fails", () => {
  it("an unreachable server leaves the last answer on the screen", () => {
    const stalled = afterFailure(live, new Unreachable(null));
    expect(stalled).toMatchObject({ kind: "stalled", value: 7, since: 100 });
    expect(afterFailure(stalled, new Unreachable(null))).toMatchObject({ kind: "stalled", value: 7, since: 100 });
  });

  it("a refusal removes the last answer, which no longer fits the question", () => {
    expect(afterFailure(live, new Refused(404, "no such entity", []))).toEqual({
      kind: "failed",
      reason: "no such entity",
    });
  });

  it.each([400, 401, 403])("a refusal with %i is not an absent server", (status) => {
    expect(afterFailure(live, new Refused(status, "no", []))).toEqual({ kind: "refused", reason: "no", status });
  });

  it("an absent answer stays absent", () => {
    expect(afterFailure({ kind: "loading" }, new Unreachable(null)).kind).toBe("failed");
  });
});
