/** What can be done with a topic: append a record, change its settings, delete it. */
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { type Appended, appendRecord, type NewRecord } from "../api/records";
import { alterTopic, deleteTopic, type TopicInfo, type TopicSettings } from "../api/topics";
import { bytes, counted } from "../format";
import { ConfirmButton } from "./confirm";
import { Field, FormDialog, textOf } from "./form-dialog";
import { recordsOf } from "./topic-list";
import { settingsOf, TopicFields } from "./topic-form";

/** Topics of Millstream whose settings may be changed. */
const CHANGEABLE: readonly string[] = ["user", "telemetry", "event", "command", "command_response", "context_update"];

export function TopicActions(props: {
  tenant: string;
  info: TopicInfo;
  onAppended: (place: Appended) => void;
  onChanged: () => void;
  onDeleted: () => void;
}): ComponentChildren {
  const { tenant, info, onAppended, onChanged, onDeleted } = props;
  return (
    <div class="job-actions">
      {info.config.writers === "anyone" && <AppendRecord tenant={tenant} info={info} onAppended={onAppended} />}
      {CHANGEABLE.includes(info.kind) && <ChangeSettings tenant={tenant} info={info} onChanged={onChanged} />}
      {info.kind === "user" && <DeleteTopic tenant={tenant} info={info} onDeleted={onDeleted} />}
    </div>
  );
}

function AppendRecord(props: {
  tenant: string;
  info: TopicInfo;
  onAppended: (place: Appended) => void;
}): ComponentChildren {
  const { tenant, info, onAppended } = props;
  return (
    <FormDialog
      role="writer"
      label="Append a record"
      tone="primary"
      submit="Append"
      refusal="The record was not appended"
      act={async (form) => {
        onAppended(await appendRecord(tenant, info.name, recordText(form)));
      }}
    >
      <Field label="Key">
        <input name="key" placeholder="none" spellcheck={false} autocomplete="off" autocapitalize="off" />
      </Field>
      <Field label="Value is">
        <select name="kind" defaultValue="json">
          <option value="json">JSON</option>
          <option value="text">text</option>
          <option value="none">none: deletes its key if the topic is compacted</option>
        </select>
      </Field>
      <label class="tall">
        <span>Value</span>
        <textarea name="value" rows={6} spellcheck={false} placeholder={'{"item": "bolt", "count": 7}'} />
      </label>
      <label class="tall">
        <span>
          Headers <small>a line each</small>
        </span>
        <textarea name="headers" rows={2} spellcheck={false} placeholder="source: console" />
      </label>
      <Field label="Partition" hint="else by its key">
        <input name="partition" type="number" min="0" max={info.partitions.length - 1} />
      </Field>
    </FormDialog>
  );
}

/** The record of the form as JSON text. A JSON value stays as it was typed, with all of its digits. */
export function recordText(form: FormData): string {
  const record: NewRecord = {};
  const [key, kind, partition] = [textOf(form, "key"), textOf(form, "kind"), textOf(form, "partition")];
  if (key !== "") record.key = key;
  if (partition !== "") record.partition = Number(partition);
  const headers = headersOf(textOf(form, "headers"));
  if (Object.keys(headers).length > 0) record.headers = headers;
  const value = form.get("value");
  const text = typeof value === "string" ? value : "";
  if (kind === "text") return JSON.stringify({ ...record, value_text: text });
  if (kind === "none") return JSON.stringify({ ...record, value: null });
  if (text.trim() === "") throw new Error("the value is empty; type JSON, or choose text or none above");
  try {
    JSON.parse(text);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`the value is no JSON (${why}); correct it, or choose text above`, { cause });
  }
  const rest = JSON.stringify(record).slice(1, -1);
  return `{${rest === "" ? "" : `${rest},`}"value":${text}}`;
}

/** Lines such as `source: console`. */
export function headersOf(text: string): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const line of text.split("\n").filter((one) => one.trim() !== "")) {
    const colon = line.indexOf(":");
    if (colon < 1) throw new Error(`the header '${line.trim()}' is no name and value; write name: value`);
    headers[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
  }
  return headers;
}

function ChangeSettings(props: { tenant: string; info: TopicInfo; onChanged: () => void }): ComponentChildren {
  const { tenant, info, onChanged } = props;
  return (
    <FormDialog
      role="admin"
      label="Change settings"
      tone="plain"
      submit="Change"
      refusal="Not everything was changed"
      act={async (form) => {
        for (const settings of requestsOf(settingsOf(form, info.config))) await alterTopic(tenant, info.name, settings);
        onChanged();
      }}
    >
      <TopicFields config={info.config} kind={info.kind} />
    </FormDialog>
  );
}

/** The server takes partitions in a request of their own. */
export function requestsOf(settings: TopicSettings): TopicSettings[] {
  const { partitions, ...rest } = settings;
  const requests: TopicSettings[] = Object.keys(rest).length === 0 ? [] : [rest];
  return partitions === undefined ? requests : [...requests, { partitions }];
}

/** Asks for the name of the topic: its records are gone for good. */
function DeleteTopic(props: { tenant: string; info: TopicInfo; onDeleted: () => void }): ComponentChildren {
  const { tenant, info, onDeleted } = props;
  const typed = useRef<HTMLInputElement>(null);
  return (
    <ConfirmButton
      role="admin"
      label="Delete topic"
      title={`Delete ${info.name}?`}
      tone="stop"
      act={async () => {
        if (typed.current?.value !== info.name) throw new Error(`type '${info.name}' to delete it`);
        await deleteTopic(tenant, info.name);
      }}
      onDone={onDeleted}
    >
      {counted(recordsOf(info), "record")} with {bytes(info.bytes)} will be gone, and what groups have read of them.
      This cannot be taken back.
      <label class="typed-name">
        <span>Type the topic's name to confirm</span>
        <input ref={typed} spellcheck={false} autocomplete="off" autocapitalize="off" />
      </label>
    </ConfirmButton>
  );
}
