/** Tells which devices have sent measurements that became no entity, or only a part of one. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchMappingErrors, type MappingError } from "../api/devices";
import { ago, counted, whole } from "../format";
import { latest, usePolled } from "../live/remote";
import { follow, href } from "../route";
import { sentence } from "./notice";

const PERIOD_MS = 5_000;
const SHOWN_MAX = 5;

/** Nothing if all went well, or if the server does not tell. */
export function MappingNotice({ tenant }: { tenant: string }): ComponentChildren {
  const remote = usePolled(
    useCallback(() => fetchMappingErrors(tenant, null), [tenant]),
    PERIOD_MS,
  );
  const errors = latest(remote);
  if (errors === null || errors.total === 0) return null;
  const { total, devices } = errors;
  const isAll = total <= devices.length;
  const count = devices.reduce((sum, device) => sum + device.count, 0);
  const newest = devices[0];
  return (
    <details class="notice warning mapping-notice">
      <summary>
        <strong>
          {isAll ? "" : "More than "}
          {counted(count, "measurement")} of {counted(total, "device")} became no entity, or only part of one
        </strong>
        {newest !== undefined && (
          <span class="quiet">
            {" "}
            · last of {newest.device}, {ago(Date.parse(newest.at), Date.now())}
          </span>
        )}
      </summary>
      <ul>
        {devices.slice(0, SHOWN_MAX).map((error) => (
          <Line key={error.device} tenant={tenant} error={error} />
        ))}
      </ul>
      {total > SHOWN_MAX && <p>And {counted(total - SHOWN_MAX, "other device")}.</p>}
      <p>
        Counted since the server started. What was sent stays in its topic, <code>telemetry.{tenant || "default"}</code>
        . Change what the device sends, or its mapping (<code>ext.context</code> of the device or its tenant in the
        registry); measurements from then on are read anew.
      </p>
    </details>
  );
}

function Line({ tenant, error }: { tenant: string; error: MappingError }): ComponentChildren {
  const { device, at, what, count } = error;
  return (
    <li>
      <a href={href("devices", { tenant, device })} onClick={follow}>
        {device}
      </a>{" "}
      <span class="quiet">
        {whole(count)} ×, last{" "}
        <time dateTime={at} title={at}>
          {ago(Date.parse(at), Date.now())}
        </time>
      </span>
      <br />
      {sentence(what)}
    </li>
  );
}
