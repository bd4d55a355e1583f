/** One device: whether it is there, what it sends, how it logs in, and commands to it. */
import type { ComponentChildren } from "preact";
import { useCallback, useState } from "preact/hooks";
import { type Credential, fetchCredentials } from "../api/credentials";
import {
  deleteDevice,
  fetchDevice,
  fetchMappingErrors,
  type MappingError,
  replaceDevice,
  type StoredDevice,
} from "../api/devices";
import { ago, clock, counted, moment, whole } from "../format";
import { latest, usePolled } from "../live/remote";
import { type DevicesMover, devicesParams, type DevicesPlace } from "../pages/devices-place";
import { follow, href } from "../route";
import { ConfirmButton } from "./confirm";
import { DeviceCommand } from "./device-command";
import { DeviceCredentials } from "./device-credentials";
import { DeviceMessages } from "./device-messages";
import { DeviceRegistration } from "./device-registration";
import { Notice, RemoteNotice, sentence } from "./notice";
import { Tile } from "./tile";

const PERIOD_MS = 2_000;

export function DeviceView({ place, onMove }: { place: DevicesPlace; onMove: DevicesMover }): ComponentChildren {
  const { tenant, device: id } = place;
  const [told, setTold] = useState(0);
  const remote = usePolled(
    useCallback(async () => {
      const [stored, credentials, errors] = await Promise.all([
        fetchDevice(tenant, id),
        fetchCredentials(tenant, id),
        fetchMappingErrors(tenant, id),
      ]);
      // Another number asks again at once.
      return { stored, credentials, error: errors.devices[0] ?? null, told };
    }, [tenant, id, told]),
    PERIOD_MS,
  );
  const known = latest(remote);
  const refresh = (): void => {
    setTold((before) => before + 1);
  };
  return (
    <>
      <div class="page-head">
        <nav aria-label="Way back" class="crumb">
          <a href={href("devices", devicesParams({ ...place, device: "" }))} onClick={follow}>
            Devices
          </a>
          <span aria-hidden="true">›</span>
        </nav>
        <h1>{id}</h1>
        {known?.stored.device.enabled === false && <span class="state warning">disabled</span>}
        <span class="spring" />
        {known !== null && (
          <DeviceActions
            tenant={tenant}
            stored={known.stored}
            onChanged={refresh}
            onDeleted={() => {
              onMove({ device: "" }, "step");
            }}
          />
        )}
      </div>
      <RemoteNotice remote={remote} what="this device" />
      {known !== null && (
        <>
          {known.error !== null && <MappingNotice error={known.error} />}
          <Tiles stored={known.stored} credentials={known.credentials.credentials} error={known.error} />
          <div class="device-body">
            <div class="device-column">
              <DeviceMessages
                tenant={tenant}
                device={known.stored.device}
                credentials={known.credentials.credentials}
              />
              <DeviceCommand tenant={tenant} device={known.stored.device} />
            </div>
            <div class="device-column">
              <DeviceCredentials tenant={tenant} device={id} stored={known.credentials} onChanged={refresh} />
              <DeviceRegistration tenant={tenant} stored={known.stored} onChanged={refresh} />
            </div>
          </div>
        </>
      )}
    </>
  );
}

function DeviceActions(props: {
  tenant: string;
  stored: StoredDevice;
  onChanged: () => void;
  onDeleted: () => void;
}): ComponentChildren {
  const { tenant, stored, onChanged, onDeleted } = props;
  const { id, enabled, document } = stored.device;
  return (
    <div class="job-actions">
      <ConfirmButton
        role="admin"
        label={enabled ? "Disable" : "Enable"}
        title={enabled ? `Disable ${id}?` : `Enable ${id}?`}
        tone="plain"
        act={() => replaceDevice(tenant, stored, { ...document, enabled: !enabled })}
        onDone={onChanged}
      >
        {enabled
          ? "Its messages and logins will be refused and its connections closed until it is enabled again."
          : "Its messages and logins will be accepted again."}
      </ConfirmButton>
      <ConfirmButton
        role="admin"
        label="Delete device"
        title={`Delete ${id}?`}
        tone="stop"
        act={() => deleteDevice(tenant, stored)}
        onDone={onDeleted}
      >
        Its registration and its credentials will be gone, and its connections closed. What it has sent stays. This
        cannot be taken back.
      </ConfirmButton>
    </div>
  );
}

function MappingNotice({ error }: { error: MappingError }): ComponentChildren {
  const at_ms = Date.parse(error.at);
  return (
    <Notice tone="warning" title="A measurement of this device became no entity, or not all of it">
      {sentence(error.what)} {counted(error.count, "time")} since the server started, last at {clock(at_ms)} (
      {ago(at_ms, Date.now())}). The message itself is stored; its mapping or its payload has to change.
    </Notice>
  );
}

function Tiles(props: {
  stored: StoredDevice;
  credentials: readonly Credential[];
  error: MappingError | null;
}): ComponentChildren {
  const { stored, credentials, error } = props;
  const { status, via } = stored.device;
  const seen_ms = status.last_seen === null ? null : Date.parse(status.last_seen);
  const usable = credentials.filter(({ enabled }) => enabled).length;
  return (
    <div class="tiles">
      <Tile label="Last seen" value={seen_ms === null ? "never" : ago(seen_ms, Date.now())}>
        {seen_ms === null ? "no message yet" : moment(seen_ms)}
      </Tile>
      <Tile label="MQTT" value={status.connected ? "connected" : "offline"}>
        {status.connected
          ? "by a connection of its own"
          : via.length > 0
            ? `behind ${via.join(", ")}`
            : "no connection of its own"}
      </Tile>
      <Tile label="Credentials" value={whole(credentials.length)}>
        {credentials.length === 0 ? "it cannot log in by itself" : `${whole(usable)} enabled`}
      </Tile>
      <Tile label="Mapping errors" value={error === null ? "none" : whole(error.count)}>
        since the server started
      </Tile>
    </div>
  );
}
