/** Sends a command to a device and shows its answer, or why there is none. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type CommandAnswer, type NewCommand, sendCommand } from "../api/commands";
import type { Device } from "../api/devices";
import { latency } from "../format";
import { useRefusal } from "../live/caller";
import { Notice, sentence } from "./notice";
import { RecordBlock } from "./record-value";

type Work =
  | { kind: "none" }
  | { kind: "asking"; name: string }
  | { kind: "done"; name: string; answer: CommandAnswer }
  | { kind: "failed"; name: string; reason: string };

export function DeviceCommand({ tenant, device }: { tenant: string; device: Device }): ComponentChildren {
  const [work, setWork] = useState<Work>({ kind: "none" });
  const [oneWay, setOneWay] = useState(false);
  const abort = useRef<AbortController | null>(null);
  useEffect(
    () => () => {
      abort.current?.abort();
    },
    [],
  );
  const send = async (command: NewCommand): Promise<void> => {
    const { name } = command;
    const asking = new AbortController();
    abort.current = asking;
    setWork({ kind: "asking", name });
    try {
      const answer = await sendCommand(tenant, device.id, command, asking.signal);
      setWork({ kind: "done", name, answer });
    } catch (cause) {
      if (asking.signal.aborted) setWork({ kind: "none" });
      else setWork({ kind: "failed", name, reason: cause instanceof Error ? cause.message : String(cause) });
    }
  };
  const asking = work.kind === "asking";
  const refusal = useRefusal("writer");
  return (
    <section class="card" aria-labelledby="command">
      <div class="card-tools">
        <h2 id="command">Command</h2>
      </div>
      <form
        class="command-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (!asking && refusal === undefined) void send(commandOf(new FormData(event.currentTarget), oneWay));
        }}
      >
        <label class="command-name">
          <span>Name</span>
          <input
            name="name"
            required
            placeholder="set-interval"
            spellcheck={false}
            autocomplete="off"
            autocapitalize="off"
          />
        </label>
        <label>
          <span>Answer</span>
          <select
            value={oneWay ? "none" : "wanted"}
            onChange={(event) => {
              setOneWay(event.currentTarget.value === "none");
            }}
          >
            <option value="wanted">wait for it</option>
            <option value="none">none, one-way</option>
          </select>
        </label>
        <label>
          <span>Waits for the device, s</span>
          <input name="ttl_s" type="number" min="0" defaultValue="0" />
        </label>
        <label>
          <span>{oneWay ? "Until told, s" : "Until answered, s"}</span>
          <input name="timeout_s" type="number" min="1" max="60" defaultValue="10" />
        </label>
        <label class="command-payload">
          <span>Payload</span>
          <textarea name="payload" rows={3} spellcheck={false} placeholder={'{"seconds": 30}'} />
        </label>
        <label>
          <span>Type</span>
          <input name="content_type" defaultValue="application/json" spellcheck={false} autocomplete="off" />
        </label>
        <div class="command-send">
          {asking && (
            <button type="button" onClick={() => abort.current?.abort()}>
              Stop waiting
            </button>
          )}
          <button type="submit" class="primary" aria-disabled={asking || refusal !== undefined} title={refusal}>
            {asking ? "Waiting…" : "Send"}
          </button>
        </div>
      </form>
      <Outcome work={work} />
    </section>
  );
}

function commandOf(form: FormData, one_way: boolean): NewCommand {
  const text = (field: string): string => {
    const value = form.get(field);
    return typeof value === "string" ? value : "";
  };
  return {
    name: text("name").trim(),
    payload: text("payload"),
    content_type: text("content_type").trim(),
    one_way,
    ttl_s: Number(text("ttl_s")),
    timeout_s: Number(text("timeout_s")),
  };
}

function Outcome({ work }: { work: Work }): ComponentChildren {
  switch (work.kind) {
    case "none":
      return null;
    case "asking":
      return <Notice tone="quiet" title={`Waiting for what becomes of ${work.name}…`} />;
    case "failed":
      return (
        <Notice tone="error" title={`No answer to ${work.name}`}>
          {sentence(work.reason)}
        </Notice>
      );
    case "done":
      return <Answer name={work.name} answer={work.answer} />;
  }
}

function Answer({ name, answer }: { name: string; answer: CommandAnswer }): ComponentChildren {
  switch (answer.kind) {
    case "accepted":
      return <Notice tone="quiet" title={`The device has ${name}`} />;
    case "waiting":
      return (
        <Notice tone="quiet" title={`${name} waits for the device`}>
          It is delivered when the device connects or sends with a time to wait, and survives a restart of the server.
        </Notice>
      );
    case "answered": {
      const isGood = answer.status < 400;
      return (
        <div class="command-answer" role="status">
          <p>
            <span class={isGood ? "state good" : "state error"}>
              {isGood ? "Answered" : "The device refused"}: {answer.status}
            </span>{" "}
            <span class="quiet">
              to {name} after {latency(answer.took_ms)}
              {answer.content_type === "" ? "" : `, ${answer.content_type}`}
            </span>
          </p>
          {answer.payload.kind !== "none" && <RecordBlock value={answer.payload} />}
        </div>
      );
    }
  }
}
