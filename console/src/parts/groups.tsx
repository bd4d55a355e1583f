/** How far consumer groups have read a topic, partition by partition. */
import type { ComponentChildren } from "preact";
import { useCallback } from "preact/hooks";
import { fetchGroups, type Group } from "../api/topics";
import { whole } from "../format";
import { latest, usePolled } from "../live/remote";
import { RemoteNotice } from "./notice";

const PERIOD_MS = 2_000;

export function Groups({ topic, tenant }: { topic: string; tenant: string }): ComponentChildren {
  const remote = usePolled(
    useCallback(() => fetchGroups(topic, tenant), [topic, tenant]),
    PERIOD_MS,
  );
  const groups = latest(remote);
  if (groups === null) return <RemoteNotice remote={remote} what="the groups that read it" />;
  if (groups.length === 0) return <p class="facts">No consumer group has read it.</p>;
  return <GroupTable topic={topic} groups={groups} />;
}

export function GroupTable({ topic, groups }: { topic: string; groups: readonly Group[] }): ComponentChildren {
  return (
    <table aria-label={`Groups that read ${topic}`}>
      <thead>
        <tr>
          <th scope="col">Group</th>
          {["Partition", "Position"].map((name) => (
            <th key={name} scope="col" class="number">
              {name}
            </th>
          ))}
          <th scope="col" class="number" title="Offsets between the position and the stable one">
            Lag
          </th>
        </tr>
      </thead>
      <tbody>
        {groups.flatMap(({ group, partitions }) =>
          partitions.map(({ partition, position, lag }) => (
            <tr key={`${partition} ${group}`}>
              <th scope="row">{group}</th>
              <td class="number">{partition}</td>
              <td class="number">{whole(position)}</td>
              <td class="number">{whole(lag)}</td>
            </tr>
          )),
        )}
      </tbody>
    </table>
  );
}
