/** Documents of jobs: read, checked, tested and submitted. */
import { array, boolean, type Json, json, nullable, number, object, string } from "./decode";
import { ask, change, Refused, send, Unreachable } from "./http";
import { pathOf } from "./jobs";
import { rawMembers } from "./raw-json";

/** The document of a job as JSON, with all digits of its numbers. */
export async function fetchDocumentText(tenant: string, id: string): Promise<string> {
  const answer = await send({ path: pathOf(id), tenant });
  const text = await answer.text().catch((cause: unknown) => {
    throw new Unreachable(cause);
  });
  return rawMembers(text).get("document") ?? "{}";
}

/** The JSON Schema of documents. */
export async function fetchSchema(tenant: string): Promise<Json> {
  return (await ask({ path: "/api/jobs/schema", tenant }, json)).value;
}

/** One fault of a document. */
export interface JobFinding {
  /** The place in the document, such as `sinks.out.config.topic`; empty for the whole. */
  path: string;
  /** The bundle whose text has the fault, with its line and column; null for the document itself. */
  bundle: string | null;
  /** From 1. */
  line: number;
  /** In characters, from 1. */
  column: number;
  /** The offending value as JSON; null where something is missing. */
  value: string | null;
  message: string;
  /** The name that was probably meant. */
  nearest: string | null;
}

const decodeRefusal = object({
  findings: array(
    object<JobFinding>({
      path: string,
      bundle: nullable(string),
      line: number,
      column: number,
      value: nullable(string),
      message: string,
      nearest: nullable(string),
    }),
  ),
});

/** The faults of a document; none if it keeps all rules. */
export async function checkDocument(tenant: string, text: string, signal: AbortSignal): Promise<JobFinding[]> {
  try {
    await change({ ...documentCall(tenant, text), path: "/api/jobs/validate", signal });
    return [];
  } catch (cause) {
    return findingsOf(cause) ?? raise(cause);
  }
}

/** The faults for which the server refused a document; null if it was for another reason. */
export function findingsOf(cause: unknown): JobFinding[] | null {
  if (!(cause instanceof Refused) || cause.status !== 422) return null;
  try {
    return decodeRefusal(cause.body, "answer").findings;
  } catch {
    return null;
  }
}

function documentCall(
  tenant: string,
  text: string,
): { tenant: string; method: "POST"; content: string; contentType: string } {
  return { tenant, method: "POST", content: text, contentType: "application/yaml" };
}

function raise(cause: unknown): never {
  throw cause;
}

/** A difference between what a test expects and what came out. */
export interface TestDifference {
  /** Null if it is about the whole job. */
  node: string | null;
  message: string;
  /** The record that the test expects, and the one that came out; null where there is none. */
  expected: Json | null;
  actual: Json | null;
}

export interface TestResult {
  name: string;
  /** The line in which the test begins, from 1. */
  line: number;
  passed: boolean;
  differences: TestDifference[];
}

const decodeReport = object({
  tests: array(
    object<TestResult>({
      name: string,
      line: number,
      passed: boolean,
      differences: array(
        object<TestDifference>({
          node: nullable(string),
          message: string,
          expected: nullable(json),
          actual: nullable(json),
        }),
      ),
    }),
  ),
});

/** Runs the tests of a document, in its order. */
export async function testDocument(tenant: string, text: string): Promise<TestResult[]> {
  return (await ask({ ...documentCall(tenant, text), path: "/api/jobs/test" }, decodeReport)).value.tests;
}

/** The time for the running job to stop: the answer comes before this page gives the request up. */
const REPLACE_TIMEOUT = "20s";

/** Submits a job, and returns its id; with `replaces` it takes the place of the running job of its name. */
export async function submitDocument(tenant: string, text: string, replaces: boolean): Promise<string> {
  const query = replaces ? `?${new URLSearchParams({ replace: "true", timeout: REPLACE_TIMEOUT })}` : "";
  return (await ask({ ...documentCall(tenant, text), path: `/api/jobs${query}` }, object({ id: string }))).value.id;
}

/** The running job for whose name another one was refused; null if it was for another reason. */
export function holderOf(cause: unknown): string | null {
  if (!(cause instanceof Refused) || cause.status !== 409) return null;
  try {
    return object({ job: nullable(string) })(cause.body, "answer").job;
  } catch {
    return null;
  }
}
