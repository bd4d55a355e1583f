/** The settings of a topic in a form: of a new one, or of one that is to be changed. */
import type { ComponentChildren } from "preact";
import { sizeOf } from "../amount";
import type { TopicConfig, TopicSettings } from "../api/topics";
import { Field, textOf } from "./form-dialog";

const CLEANUPS = [
  ["delete", "by age and size"],
  ["compact", "keep the last of each key"],
  ["compact,delete", "last of each key, until too old"],
] as const;

const LEVELS = [
  ["synced", "power loss (synced)"],
  ["written", "kill -9 (written)"],
  ["memory", "nothing (memory)"],
] as const;

const COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"] as const;

/** Settings of a new topic, as the server has them if nothing is said. */
const DEFAULTS = {
  partitions: 4,
  storage: "disk",
  level: "synced",
  cleanup: "delete",
  retention: "7d",
  retention_bytes: null,
  compression: "none",
  record_max_bytes: 1 << 20,
} as const;

type Settings = Pick<
  TopicConfig,
  "partitions" | "storage" | "level" | "cleanup" | "retention" | "retention_bytes" | "compression" | "record_max_bytes"
>;

/** `config` of the topic that is to be changed; null for a new one. */
export function TopicFields({ config, kind }: { config: TopicConfig | null; kind: string }): ComponentChildren {
  const of: Settings = config ?? DEFAULTS;
  const grows = kind === "user" && !of.cleanup.startsWith("compact");
  return (
    <>
      <Field label="Partitions" {...(config === null ? {} : { hint: grows ? "may grow" : "cannot change" })}>
        <input
          name="partitions"
          type="number"
          min={config === null ? 1 : of.partitions}
          max="10000"
          defaultValue={String(of.partitions)}
          readOnly={config !== null && !grows}
        />
      </Field>
      {config === null && (
        <Field label="Kept">
          <select name="storage" defaultValue="disk">
            <option value="disk">on disk</option>
            <option value="memory">in memory, a ring of 16 MiB a partition</option>
          </select>
        </Field>
      )}
      <Field label="Old records go">
        <select name="cleanup" defaultValue={of.cleanup}>
          {CLEANUPS.map(([cleanup, label]) => (
            <option key={cleanup} value={cleanup}>
              {cleanup}: {label}
            </option>
          ))}
        </select>
      </Field>
      <Field label="Kept for" hint="such as 12h or 7d; none">
        <input name="retention" defaultValue={of.retention ?? "none"} autocomplete="off" />
      </Field>
      <Field label="Kept up to" hint="a partition; such as 1 GiB, none">
        <input
          name="retention_bytes"
          defaultValue={of.retention_bytes === null ? "none" : sizeText(of.retention_bytes)}
          autocomplete="off"
        />
      </Field>
      <Field label="A record survives">
        <select name="level" defaultValue={of.level}>
          {LEVELS.map(([level, label]) => (
            <option key={level} value={level}>
              {label}
            </option>
          ))}
        </select>
      </Field>
      <Field label="Compression">
        <select name="compression" defaultValue={of.compression}>
          {COMPRESSIONS.map((compression) => (
            <option key={compression}>{compression}</option>
          ))}
        </select>
      </Field>
      <Field label="Largest record">
        <input name="record_max_bytes" defaultValue={sizeText(of.record_max_bytes)} autocomplete="off" />
      </Field>
    </>
  );
}

/** The settings in which the form differs from `config`, or from those that a new topic gets. */
export function settingsOf(form: FormData, config: TopicConfig | null): TopicSettings {
  const of: Settings = config ?? DEFAULTS;
  const settings: Record<string, string | number | null> = {};
  const put = (name: keyof Settings, value: string | number | null): void => {
    if (form.has(name) && value !== of[name]) settings[name] = value;
  };
  const partitions = textOf(form, "partitions");
  put("partitions", partitions === "" ? of.partitions : Number(partitions));
  for (const name of ["storage", "cleanup", "level", "compression"] as const) put(name, textOf(form, name));
  const retention = textOf(form, "retention");
  put("retention", retention === "none" ? null : retention);
  for (const name of ["retention_bytes", "record_max_bytes"] as const) {
    const text = textOf(form, name);
    // What is no size is the server's to refuse, in its own words.
    put(name, text === "none" ? null : (sizeOf(text) ?? text));
  }
  return settings;
}

/** A size that is read back as the same number: `64 MiB`, `1000`. */
function sizeText(size: number): string {
  const [unit, bytes] = (
    [
      ["GiB", 2 ** 30],
      ["MiB", 2 ** 20],
      ["KiB", 2 ** 10],
    ] as const
  ).find(([, bytes]) => size > 0 && size % bytes === 0) ?? ["", 1];
  return `${size / bytes} ${unit}`.trim();
}
