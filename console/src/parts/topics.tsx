/** The log's topics; each opens to show its partitions. Which are open stands in the address bar. */
import type { ComponentChildren } from "preact";
import type { Partition, Topic } from "../api/stats";
import { bytes, short, whole } from "../format";
import { useRates } from "../live/rates";
import { go, href } from "../route";
import { Groups } from "./groups";
import { Notice } from "./notice";
import { TENANT_DEFAULT } from "./tenant";
import { Name } from "./value";

const COLUMNS = 7;

export function TopicsTable({
  topics,
  params,
}: {
  topics: readonly Topic[];
  params: URLSearchParams;
}): ComponentChildren {
  const rates = useRates(topics);
  const tenant = params.get("tenant") ?? "";
  const tenantName = tenant === "" ? TENANT_DEFAULT : tenant;
  const open = new Set((params.get("open") ?? "").split(",").filter((name) => name !== ""));
  const toggle = (name: string): void => {
    if (!open.delete(name)) open.add(name);
    const chosen = { ...Object.fromEntries(params), open: [...open].join(",") };
    go(href("overview", chosen), "amend");
  };
  // What devices and applications write comes first; the platform's own topics begin with an underscore.
  const sorted = topics.toSorted((a, b) => Number(internal(a)) - Number(internal(b)) || a.name.localeCompare(b.name));
  return (
    <section class="card" aria-labelledby="topics">
      <h2 id="topics">
        Topics <small>tenant {tenantName}</small>
      </h2>
      {sorted.every(internal) && (
        <Notice tone="quiet" title={`Tenant ${tenantName} has no topics`}>
          The first message of one of its devices creates one. A tenant that does not exist looks the same.
        </Notice>
      )}
      {sorted.length > 0 && (
        <div class="scroll">
          <table class="topics">
            <thead>
              <tr>
                <th scope="col">Topic</th>
                <th scope="col">Tenant</th>
                <th scope="col">Kind</th>
                <th scope="col" class="number">
                  Partitions
                </th>
                <th scope="col" class="number" title="From the first offset kept to the tail, over all partitions">
                  Offsets
                </th>
                <th scope="col" class="number">
                  Per second
                </th>
                <th scope="col" class="number">
                  Size
                </th>
              </tr>
            </thead>
            {sorted.map((topic) => (
              <TopicRows
                key={topic.name}
                topic={topic}
                tenant={tenant}
                rate={rates.get(topic.name) ?? 0}
                open={open.has(topic.name)}
                onToggle={() => {
                  toggle(topic.name);
                }}
              />
            ))}
          </table>
        </div>
      )}
    </section>
  );
}

function TopicRows(props: {
  topic: Topic;
  tenant: string;
  rate: number;
  open: boolean;
  onToggle: () => void;
}): ComponentChildren {
  const { topic, tenant, rate, open, onToggle } = props;
  const hasSegments = topic.partitions.some(({ segments }) => segments !== null);
  const total = (count: (partition: Partition) => number): number =>
    topic.partitions.reduce((sum, partition) => sum + count(partition), 0);
  return (
    <tbody class={internal(topic) ? "internal" : ""}>
      <tr>
        <th scope="row">
          <button type="button" class="disclosure" aria-expanded={open} onClick={onToggle}>
            <Name text={topic.name} />
          </button>
        </th>
        <td>{topic.tenant}</td>
        <td>{topic.kind}</td>
        <td class="number">{topic.partitions.length}</td>
        <td class="number">{whole(total(({ first, tail }) => tail - first))}</td>
        <td class="number">{rate > 0 ? short(rate) : "–"}</td>
        <td class="number">{bytes(total((partition) => partition.bytes))}</td>
      </tr>
      {open && (
        <tr class="partitions">
          <td colSpan={COLUMNS}>
            <table aria-label={`Partitions of ${topic.name}`}>
              <thead>
                <tr>
                  {partitionColumns(hasSegments).map((name) => (
                    <th key={name} scope="col" class="number">
                      {name}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {topic.partitions.map((partition) => (
                  <tr key={partition.partition}>
                    <th scope="row" class="number">
                      {partition.partition}
                    </th>
                    <td class="number">{whole(partition.first)}</td>
                    <td class="number">{whole(partition.stable)}</td>
                    <td class="number">{whole(partition.tail)}</td>
                    <td class="number">{whole(partition.tail - partition.stable)}</td>
                    <td class="number">{bytes(partition.bytes)}</td>
                    {partition.segments !== null && <td class="number">{whole(partition.segments)}</td>}
                  </tr>
                ))}
              </tbody>
            </table>
            {!internal(topic) && <Groups topic={topic.name} tenant={tenant} />}
          </td>
        </tr>
      )}
    </tbody>
  );
}

function partitionColumns(hasSegments: boolean): string[] {
  const columns = ["Partition", "First", "Stable", "Tail", "Unstable", "Size"];
  return hasSegments ? [...columns, "Segments"] : columns;
}

function internal(topic: Topic): boolean {
  return topic.name.startsWith("_");
}
