/**
 * One request to the server this page came from: its answer decoded, or an error a person can read.
 *
 * The three ways to fail stay apart: no answer ({@link Unreachable}), a refusal ({@link Refused}), and an answer
 * that is not what the API promises (`DecodeError`).
 */
import { BASE } from "../base";
import { credentials } from "./credential";
import { array, type Decoder, nullable, number, object, string, withDefault } from "./decode";

/** How long an ordinary request may take before the page says that the server is stalled. */
const ANSWER_MAX_MS = 5_000;
/** How long a change may take: it may have to wait for a disk. */
const CHANGE_MAX_MS = 30_000;

/** One thing the server found, and where in the text that was sent. */
export interface Finding {
  /** A text with an error is no query; one with a hint is, but perhaps not the one that was meant. */
  kind: "error" | "hint";
  message: string;
  /** From 1. */
  line: number;
  /** From 1. */
  column: number;
  length: number;
  suggestion: string | null;
}

export class Unreachable extends Error {
  constructor(cause: unknown, limit_ms = ANSWER_MAX_MS) {
    super(
      cause instanceof DOMException && cause.name === "TimeoutError"
        ? `no answer within ${limit_ms / 1000} s`
        : "the server cannot be reached",
      { cause },
    );
    this.name = "Unreachable";
  }
}

export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly findings: readonly Finding[],
    /** The body of the answer, for members that one route alone has; undefined if it was no JSON. */
    readonly body?: unknown,
  ) {
    super(message);
    this.name = "Refused";
  }
}

/** Problem details (RFC 9457), or NGSI-v2's `error` and `description`. */
const refusal = object({
  title: nullable(string),
  detail: nullable(string),
  error: nullable(string),
  description: nullable(string),
  errors: withDefault(findings("error"), []),
});

/** A list of findings, all of one kind. */
export function findings(kind: Finding["kind"]): Decoder<Finding[]> {
  const places = array(
    object({
      message: string,
      line: withDefault(number, 1),
      column: withDefault(number, 1),
      length: withDefault(number, 1),
      suggestion: nullable(string),
    }),
  );
  return (value, path) => places(value, path).map((place) => ({ kind, ...place }));
}

export interface Call {
  path: string;
  tenant: string;
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  body?: unknown;
  /** A body that is sent as it is, instead of `body`, with its type. */
  content?: string;
  contentType?: string;
  accept?: string;
  /** The version that a change depends on, as an entity tag. */
  ifMatch?: string;
  /** Asks the server even if the browser has an answer that is fresh. */
  cache?: "no-store";
  signal?: AbortSignal;
  /** The login to send instead of the one that is kept; null for none. */
  bearer?: string | null;
}

/**
 * Sends `call` with the login that is kept; a refusal is thrown, anything else is the caller's to read. The body has no time
 * limit of its own. A login that the server does not take is forgotten, and the console asks for another.
 */
export async function send(call: Call): Promise<Response> {
  const headers = new Headers({ Accept: call.accept ?? "application/json" });
  if (call.tenant !== "") headers.set("Fiware-Service", call.tenant);
  const init: RequestInit = { method: call.method ?? "GET", headers };
  if (call.ifMatch !== undefined) headers.set("If-Match", call.ifMatch);
  if (call.cache !== undefined) init.cache = call.cache;
  if (call.signal) init.signal = call.signal;
  if (call.body !== undefined) {
    headers.set("Content-Type", "application/json");
    init.body = JSON.stringify(call.body);
  }
  if (call.content !== undefined) init.body = call.content;
  if (call.contentType !== undefined) headers.set("Content-Type", call.contentType);
  const bearer = call.bearer === undefined ? await credentials.bearer() : call.bearer;
  let answer = await sendAs(bearer, call.path, init, headers);
  if (answer.status === 401 && call.bearer === undefined) {
    const better = await credentials.better(bearer);
    if (better !== null) answer = await sendAs(better, call.path, init, headers);
    if (answer.status === 401) {
      const refusal = await refused(answer);
      credentials.lose(better ?? bearer, refusal.message);
      throw refusal;
    }
  }
  if (!answer.ok) throw await refused(answer);
  return answer;
}

async function sendAs(bearer: string | null, path: string, init: RequestInit, headers: Headers): Promise<Response> {
  if (bearer !== null) headers.set("Authorization", `Bearer ${bearer}`);
  try {
    return await fetch(BASE + path, init);
  } catch (cause) {
    throw new Unreachable(cause);
  }
}

/** Sends `call` and decodes its JSON answer, all in the time that {@link timeLimitOf} gives it. */
export async function ask<T>(call: Call, decoder: Decoder<T>): Promise<{ value: T; headers: Headers }> {
  return inTime(call, async (answer) => {
    const text = await answer.text().catch((cause: unknown) => {
      throw new Unreachable(cause);
    });
    return { value: decoder(parse(text), "answer"), headers: answer.headers };
  });
}

/** Sends a change whose answer has nothing to read but its headers. */
export async function change(call: Call & { method: "POST" | "PUT" | "PATCH" | "DELETE" }): Promise<Headers> {
  return inTime(call, async (answer) => {
    await answer.body?.cancel();
    return answer.headers;
  });
}

function timeLimitOf({ method }: Call): number {
  return method === undefined || method === "GET" ? ANSWER_MAX_MS : CHANGE_MAX_MS;
}

async function inTime<T>(call: Call, read: (answer: Response) => Promise<T>): Promise<T> {
  const limit_ms = timeLimitOf(call);
  const limit = AbortSignal.timeout(limit_ms);
  const signal = call.signal ? AbortSignal.any([call.signal, limit]) : limit;
  try {
    return await read(await send({ ...call, signal }));
  } catch (cause) {
    throw cause instanceof Unreachable ? new Unreachable(cause.cause, limit_ms) : cause;
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

async function refused(answer: Response): Promise<Refused> {
  const plain = `the server answered ${answer.status} ${answer.statusText}`.trimEnd();
  const body = parse(await answer.text().catch(() => ""));
  try {
    const { title, detail, error, description, errors } = refusal(body, "answer");
    // The member `error` of problem details says it all in one text: detail, value, rule and remedy.
    const whole = detail !== null && errors.length === 0 ? error : null;
    return new Refused(answer.status, whole ?? detail ?? description ?? title ?? error ?? plain, errors, body);
  } catch {
    return new Refused(answer.status, plain, [], body);
  }
}
