/** What a topic is made of: its settings, its partitions, and how far groups have read them. */
import type { ComponentChildren } from "preact";
import type { TopicInfo } from "../api/topics";
import { bytes, whole } from "../format";
import { GroupTable } from "./groups";

/** Partitions that are shown; a topic may have thousands. */
const SHOWN_MAX = 128;

export function TopicPartitions({ info }: { info: TopicInfo }): ComponentChildren {
  const hasSegments = info.partitions.some(({ segments }) => segments !== null);
  return (
    <div class="topic-parts">
      <section class="card cut-corners" aria-labelledby="topic-partitions">
        <h2 id="topic-partitions">Partitions</h2>
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of partitions">
          <table aria-label={`Partitions of ${info.name}`}>
            <thead>
              <tr>
                {["Partition", "First", "Stable", "Tail", "Size", ...(hasSegments ? ["Segments"] : [])].map((name) => (
                  <th key={name} scope="col" class="number">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {info.partitions.slice(0, SHOWN_MAX).map((partition) => (
                <tr key={partition.partition}>
                  <th scope="row" class="number">
                    {partition.partition}
                  </th>
                  <td class="number">{whole(partition.first)}</td>
                  <td class="number">{whole(partition.stable)}</td>
                  <td class="number">{whole(partition.tail)}</td>
                  <td class="number">{bytes(partition.bytes)}</td>
                  {partition.segments !== null && <td class="number">{whole(partition.segments)}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        {info.partitions.length > SHOWN_MAX && (
          <p class="card-note">
            The first {SHOWN_MAX} of {whole(info.partitions.length)}.
          </p>
        )}
      </section>
      <section class="card cut-corners" aria-labelledby="topic-groups">
        <h2 id="topic-groups">Groups</h2>
        {info.groups.length === 0 ? (
          <p class="card-note">No consumer group has read it.</p>
        ) : (
          <div class="scroll" tabIndex={0} role="region" aria-label="Table of groups">
            <GroupTable topic={info.name} groups={info.groups} />
          </div>
        )}
      </section>
      <section class="card" aria-labelledby="topic-settings">
        <h2 id="topic-settings">Settings</h2>
        <dl class="fact-list">
          {settingsOf(info).map(([name, text]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
      </section>
    </div>
  );
}

function settingsOf({ config, kind }: TopicInfo): [string, string][] {
  return [
    ["Kind", kind === "user" ? "your own" : `Millstream's, ${kind.replace("_", " ")}`],
    ["Storage", config.storage],
    ["Cleanup", config.cleanup],
    ["Retention", config.retention ?? "none"],
    ["Retention size", config.retention_bytes === null ? "none" : `${bytes(config.retention_bytes)} a partition`],
    ["Level", config.level],
    ["Compression", config.compression],
    ["Largest record", bytes(config.record_max_bytes)],
    ["Segments", `${bytes(config.segment_bytes)}, ${config.segment_age}`],
    ["Written by", config.writers === "anyone" ? "whoever may" : "Millstream alone"],
  ];
}
