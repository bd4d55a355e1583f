/** A button that asks for the name and the settings of a bucket, and makes it. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { sizeOf, spanOf } from "../amount";
import { type Bucket, makeBucket, type NewBucket } from "../api/store";
import { Field, FormDialog } from "./form-dialog";

const POLICIES = [
  "allkeys-lru",
  "allkeys-lfu",
  "allkeys-random",
  "volatile-lru",
  "volatile-lfu",
  "volatile-random",
  "volatile-ttl",
  "noeviction",
  "slru",
] as const;

const DURABLE = "durable";

export function CreateBucket(props: {
  tenant: string;
  known: readonly Bucket[];
  onMade: (name: string) => void;
}): ComponentChildren {
  const { tenant, known, onMade } = props;
  return (
    <FormDialog
      role="admin"
      label="Create a bucket"
      tone="primary"
      submit="Create"
      refusal="The bucket was not made"
      act={async (form) => {
        const { name, settings } = bucketOf(
          new Map([...form].map(([field, value]) => [field, typeof value === "string" ? value.trim() : ""])),
        );
        // The same request to a bucket that is there would change its settings.
        if (known.some((bucket) => bucket.name === name)) {
          throw new Error(`there is a bucket '${name}' already; choose another name`);
        }
        await makeBucket(tenant, name, settings);
        onMade(name);
      }}
    >
      <BucketFields />
    </FormDialog>
  );
}

function BucketFields(): ComponentChildren {
  const [kind, setKind] = useState(DURABLE);
  return (
    <>
      <Field label="Name">
        <input name="name" required spellcheck={false} autocomplete="off" autocapitalize="off" />
      </Field>
      <Field label="Kind">
        <select
          name="kind"
          value={kind}
          onChange={(event) => {
            setKind(event.currentTarget.value);
          }}
        >
          <option value={DURABLE}>durable</option>
          <option value="cache">cache, in memory</option>
        </select>
      </Field>
      {kind === DURABLE ? (
        <>
          <Field label="Partitions" hint="1 for a Redis database">
            <input name="partitions" type="number" min="1" max="64" defaultValue="4" />
          </Field>
          <Field label="A write survives">
            <select name="ack" defaultValue="synced">
              <option value="synced">power loss (synced)</option>
              <option value="written">kill -9 (written)</option>
              <option value="memory">nothing (memory)</option>
            </select>
          </Field>
        </>
      ) : (
        <Field label="Makes room by">
          <select name="policy" defaultValue={POLICIES[0]}>
            {POLICIES.map((policy) => (
              <option key={policy} value={policy}>
                {policy}
              </option>
            ))}
          </select>
        </Field>
      )}
      <Field label="Time to live">
        <input name="ttl_ms" placeholder="none, or 30m, 7d" autocomplete="off" />
      </Field>
      <Field label="Most bytes">
        <input name="max_bytes" placeholder="no limit, or 1 GiB" autocomplete="off" />
      </Field>
      <Field label="Most keys">
        <input name="max_keys" placeholder="no limit" inputMode="numeric" autocomplete="off" />
      </Field>
      <Field label="Largest value">
        <input name="value_max_bytes" placeholder="no limit, or 64 KiB" autocomplete="off" />
      </Field>
    </>
  );
}

/** What the fields of the form ask for. */
export function bucketOf(fields: ReadonlyMap<string, string>): { name: string; settings: NewBucket } {
  const settings: Record<string, string | number> = {};
  const given = (field: string): string => fields.get(field) ?? "";
  for (const field of ["kind", "ack", "policy"]) if (given(field) !== "") settings[field] = given(field);
  const amounts = [
    ["partitions", "partitions", Number, "a number from 1 to 64"],
    ["ttl_ms", "time to live", spanOf, "a number with ms, s, m, h or d, such as 30m"],
    ["max_bytes", "most bytes", sizeOf, "a number of bytes, or one with KiB, MiB, GiB or TiB"],
    ["max_keys", "most keys", sizeOf, "a number"],
    ["value_max_bytes", "largest value", sizeOf, "a number of bytes, or one with KiB, MiB, GiB or TiB"],
  ] as const;
  for (const [field, label, parse, rule] of amounts) {
    const text = given(field);
    if (text === "") continue;
    const value = parse(text);
    if (value === null || Number.isNaN(value)) throw new Error(`'${text}' in "${label}" is not ${rule}`);
    settings[field] = value;
  }
  return { name: given("name"), settings };
}
