/** Devices: the tenant's, or one with its credentials, messages and commands. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { DeviceList } from "../parts/device-list";
import { DeviceView } from "../parts/device-view";
import { go, href } from "../route";
import { type DevicesMover, devicesParams, devicesPlace } from "./devices-place";

export function DevicesPage({ params }: { params: URLSearchParams }): ComponentChildren {
  const place = useMemo(() => devicesPlace(params), [params]);
  const move: DevicesMover = (change, how) => {
    go(href("devices", devicesParams({ ...place, ...change })), how);
  };
  return (
    <div class="page">
      {place.device === "" ? (
        <DeviceList place={place} onMove={move} />
      ) : (
        <DeviceView key={`${place.tenant} ${place.device}`} place={place} onMove={move} />
      )}
    </div>
  );
}
