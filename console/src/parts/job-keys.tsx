/** The keys of a node that have state, with the sizes of their values, as of the last epoch that is stored. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchKeys, type StoredKeys } from "../api/jobs";
import { bytes, counted } from "../format";
import { latest } from "../live/remote";
import { useAsked } from "../live/use-asked";
import { DraftInput } from "./draft-input";
import { Notice, RemoteNotice } from "./notice";
import { When } from "./subscription-table";
import { textOf, Value } from "./value";

/** Pause in typing after which the server is asked. */
const SETTLE_MS = 500;

export function JobKeys(props: {
  tenant: string;
  job: string;
  node: string;
  /** The only key that is asked for; empty: the first ones. */
  only: string;
  onOnly: (key: string) => void;
  onClose: () => void;
}): ComponentChildren {
  const { tenant, job, node, only, onOnly, onClose } = props;
  // Each answer reads all of the job's state from the disk, so it is asked once.
  const { remote, isAsking, again } = useAsked(
    useCallback(() => fetchKeys(tenant, job, node, only), [tenant, job, node, only]),
  );
  const known = latest(remote);
  return (
    <section class="card cut-corners" aria-label={`Keys of ${node}`}>
      <div class="card-tools">
        <h2>Keys of {node}</h2>
        {known !== null && <Extent keys={known} />}
        <span class="spring" />
        <label class="filter">
          <span>Key</span>
          <DraftInput
            value={only}
            placeholder="all keys"
            title="A whole key, as text or JSON"
            settle_ms={SETTLE_MS}
            onCommit={onOnly}
          />
        </label>
        <button
          type="button"
          aria-disabled={isAsking}
          onClick={() => {
            if (!isAsking) again();
          }}
        >
          Read again
        </button>
        <button type="button" class="icon-button" aria-label="Close the keys" onClick={onClose}>
          ✕
        </button>
      </div>
      <RemoteNotice remote={remote} what="its keys" />
      {known?.values.length === 0 && (
        <Notice tone="quiet" title={only === "" ? "No key has state" : "No such key has state"}>
          {only !== "" && "A key is found by all of it, as text or JSON."}
        </Notice>
      )}
      {known !== null && known.values.length > 0 && <KeyTable keys={known} />}
    </section>
  );
}

function Extent({ keys: { epoch, at, values, more } }: { keys: StoredKeys }): ComponentChildren {
  return (
    <span class="quiet" role="status">
      {more ? `the first ${counted(values.length, "key")}` : counted(values.length, "key")}
      {epoch !== null && (
        <>
          {" "}
          as of epoch {epoch}, <When at={at} now={Date.now()} />
        </>
      )}
    </span>
  );
}

function KeyTable({ keys }: { keys: StoredKeys }): ComponentChildren {
  return (
    <div class="scroll job-keys" tabIndex={0} role="region" aria-label="Keys with the sizes of their values">
      <table>
        <thead>
          <tr>
            <th scope="col">Key</th>
            <th scope="col" class="number" title="Bytes of its value, as stored">
              Size
            </th>
          </tr>
        </thead>
        <tbody>
          {keys.values.map(({ key, bytes: size }) => (
            <tr key={JSON.stringify(key)}>
              <th scope="row" title={textOf(key)}>
                <Value value={key} />
              </th>
              <td class="number">{bytes(size)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
