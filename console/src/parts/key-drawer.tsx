/** The value of a key, with all that is stored beside it, kept up to date while it is open. */
import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useMemo, useState } from "preact/hooks";
import { deleteKey, type EncodedKey, fetchValue, keyText, type StoredValue } from "../api/store";
import { ago, bytes, moment } from "../format";
import { bytesToFetch, type Preview, previewOf } from "../live/preview";
import { latest, usePolled } from "../live/remote";
import { ConfirmButton } from "./confirm";
import { Drawer } from "./drawer";
import { RemoteNotice } from "./notice";

const PERIOD_MS = 5_000;

export function KeyDrawer(props: {
  tenant: string;
  bucket: string;
  stored: EncodedKey;
  onDeleted: () => void;
  onClose: () => void;
}): ComponentChildren {
  const { tenant, bucket, stored, onDeleted, onClose } = props;
  const remote = usePolled(
    useCallback(() => fetchValue(tenant, bucket, stored, bytesToFetch), [tenant, bucket, stored]),
    PERIOD_MS,
  );
  const value = latest(remote);
  const name = keyText(stored);
  return (
    <Drawer title={name} subtitle={`Bucket ${bucket}`} onClose={onClose}>
      <RemoteNotice remote={remote} what="this key" />
      {value !== null && (
        <>
          <Facts value={value} />
          <Value value={value} />
          <div class="drawer-actions">
            <ConfirmButton
              role="writer"
              label="Delete key"
              title={`Delete ${name}?`}
              tone="stop"
              act={() => deleteKey(tenant, bucket, stored, value.version)}
              onDone={onDeleted}
            >
              Its {bytes(value.length)} will be gone, unless somebody has changed them meanwhile. This cannot be taken
              back.
            </ConfirmButton>
          </div>
        </>
      )}
    </Drawer>
  );
}

function Facts({ value }: { value: StoredValue }): ComponentChildren {
  const now = Date.now();
  const time = (text: string): string => `${moment(Date.parse(text))}, ${ago(Date.parse(text), now)}`;
  const facts: [string, string][] = [
    ["Version", value.version],
    ["Size", bytes(value.length)],
    ["Type", value.content_type ?? "–"],
    ...(value.written === null ? [] : ([["Written", time(value.written)]] as [string, string][])),
    ["Expires", value.expires === null ? "never" : time(value.expires)],
    ...(value.timestamp === null ? [] : ([["Time stamp", time(value.timestamp)]] as [string, string][])),
    ...(value.tags.length === 0 ? [] : ([["Tags", value.tags.join(", ")]] as [string, string][])),
    ...value.metadata,
  ];
  return (
    <dl class="fact-list plain">
      {facts.map(([name, text]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{text}</dd>
        </div>
      ))}
    </dl>
  );
}

function Value({ value }: { value: StoredValue }): ComponentChildren {
  const whole = value.bytes.length === value.length;
  const preview = useMemo(
    () => previewOf(value.bytes, value.bytes.length === value.length, value.content_type),
    [value],
  );
  const shown = preview.kind === "hex" ? Math.min(preview.shown, value.bytes.length) : value.bytes.length;
  return (
    <section class="stored-value" aria-label="Value">
      <h3>
        Value <small>{NAMES[preview.kind]}</small>
      </h3>
      <Content preview={preview} value={value} />
      {(!whole || shown < value.length) && (
        <p class="quiet">
          The first {bytes(shown)} of {bytes(value.length)}.
        </p>
      )}
    </section>
  );
}

const NAMES: Readonly<Record<Preview["kind"], string>> = {
  empty: "",
  json: "JSON",
  text: "text",
  image: "image",
  hex: "bytes",
};

function Content({ preview, value }: { preview: Preview; value: StoredValue }): ComponentChildren {
  switch (preview.kind) {
    case "empty":
      return <p class="quiet">It has no bytes.</p>;
    case "json":
    case "text":
      return (
        <pre tabIndex={0} aria-label="Text of the value">
          {preview.text}
        </pre>
      );
    case "image":
      return <Image value={value} type={preview.type} />;
    case "hex":
      return (
        <pre class="hex" tabIndex={0} aria-label="Bytes of the value">
          {preview.rows.map((row) => `${row.offset}  ${row.hex.padEnd(47)}  ${row.text}\n`).join("")}
        </pre>
      );
  }
}

function Image({ value, type }: { value: StoredValue; type: string }): ComponentChildren {
  const [address, setAddress] = useState("");
  const [state, setState] = useState<{ kind: "loading" | "failed" } | { kind: "shown"; size: string }>({
    kind: "loading",
  });
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([value.bytes], { type }));
    setAddress(made);
    return () => {
      URL.revokeObjectURL(made);
    };
    // A version never has other bytes.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [value.version, type]);
  if (state.kind === "failed") return <p class="quiet">Its bytes are no image of this type.</p>;
  return (
    <figure class="preview">
      {address !== "" && (
        <img
          src={address}
          alt="The value"
          onLoad={(event) => {
            const { naturalWidth, naturalHeight } = event.currentTarget;
            setState({ kind: "shown", size: `${naturalWidth} × ${naturalHeight} pixels` });
          }}
          onError={() => {
            setState({ kind: "failed" });
          }}
        />
      )}
      {state.kind === "shown" && <figcaption class="quiet">{state.size}</figcaption>}
    </figure>
  );
}
