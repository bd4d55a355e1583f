/** `POST /api/commands`: a command to a device, and what became of it. */
import { TENANT_DEFAULT } from "./devices";
import { object, string } from "./decode";
import { send } from "./http";
import type { RecordValue } from "./records";

export interface NewCommand {
  name: string;
  payload: string;
  content_type: string;
  one_way: boolean;
  /** How long it may wait for its device; 0: not at all. */
  ttl_s: number;
  /** How long the answer is waited for. */
  timeout_s: number;
}

export type CommandAnswer =
  | { kind: "answered"; status: number; content_type: string; payload: RecordValue; took_ms: number }
  /** One-way: the device has it. */
  | { kind: "accepted" }
  /** One-way: it waits for its device. */
  | { kind: "waiting" };

const taken = object<{ outcome: string }>({ outcome: string });

/** Sends a command and waits for what becomes of it; why a device did not answer is the refusal that is thrown. */
export async function sendCommand(
  tenant: string,
  device: string,
  command: NewCommand,
  signal: AbortSignal,
): Promise<CommandAnswer> {
  const { name, payload, content_type, one_way, ttl_s, timeout_s } = command;
  const query = new URLSearchParams({ command: name, "timeout-ms": String(Math.round(timeout_s * 1000)) });
  if (one_way) query.set("one-way", "true");
  if (ttl_s > 0) query.set("ttl-s", String(ttl_s));
  const path = `/api/commands/${encodeURIComponent(tenant === "" ? TENANT_DEFAULT : tenant)}/${encodeURIComponent(device)}?${query}`;
  const began_ms = performance.now();
  const call = {
    path,
    tenant,
    method: "POST",
    content: payload,
    contentType: content_type,
    accept: "*/*",
    signal,
  } as const;
  const answer = await send(call);
  if (answer.status === 202) {
    const { outcome } = taken(await answer.json(), "answer");
    return { kind: outcome === "waiting" ? "waiting" : "accepted" };
  }
  return {
    kind: "answered",
    status: Number(answer.headers.get("hono-cmd-status") ?? answer.status),
    content_type: answer.headers.get("Content-Type") ?? "",
    payload: payloadOf(new Uint8Array(await answer.arrayBuffer())),
    took_ms: performance.now() - began_ms,
  };
}

export function payloadOf(bytes: Uint8Array): RecordValue {
  if (bytes.length === 0) return { kind: "none" };
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return { kind: isJson(text) ? "json" : "text", text };
  } catch {
    return { kind: "bytes", bytes };
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
