import { describe, expect, it } from "vitest";
import { decodeJob, type Job } from "../api/jobs";
import { holderOfName, successorOf } from "./job-lineage";

function job(id: string, second: number, resumed_from?: string): Job {
  const submitted = new Date(1_700_000_000_000 + second * 1_000).toISOString();
  return decodeJob({ id, name: "sums", state: "running", submitted, restarts: 0, resumed_from }, "answer");
}

describe("the successor of a job", () => {
  const ended = { ...job("old", 0), ended: "2023-11-14T22:13:30.000Z" };

  it("has replaced it if it was submitted before its end, and resumed it otherwise", () => {
    expect(successorOf(ended, [job("new", 9, "old")])).toMatchObject({ job: { id: "new" }, way: "replaced" });
    expect(successorOf(ended, [job("new", 11, "old")])).toMatchObject({ job: { id: "new" }, way: "resumed" });
    expect(successorOf({ ...ended, ended: null }, [job("new", 9, "old")])?.way).toBe("replacing");
  });

  it("is the one that took its place, or the newest that goes on from it", () => {
    expect(successorOf(ended, [job("c", 20, "old"), job("b", 9, "old")])?.job.id).toBe("b");
    expect(successorOf(ended, [job("c", 20, "old"), job("b", 15, "old")])?.job.id).toBe("c");
    expect(successorOf(ended, [job("c", 20, "other"), job("b", 9)])).toBeNull();
  });
});

describe("the job that has a name", () => {
  it("is the one that runs, also while another waits to replace it", () => {
    expect(holderOfName([job("new", 9, "old"), job("old", 0)])?.id).toBe("old");
    expect(holderOfName([])).toBeNull();
  });
});
