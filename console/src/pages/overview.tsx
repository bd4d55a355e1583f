/** What the server does right now: figures, their last five minutes, and the log's topics. */
import type { ComponentChildren } from "preact";
import type { Stats } from "../api/stats";
import { bytes, counted, duration, latency, short, stepped, whole } from "../format";
import { type ColumnName, type History, HISTORY_S } from "../live/history";
import { latest, type Remote } from "../live/remote";
import { Chart, type Series } from "../parts/chart";
import { LogEngineCard } from "../parts/log-engine";
import { RemoteNotice } from "../parts/notice";
import { Tile } from "../parts/tile";
import { TopicsTable } from "../parts/topics";

const CHART_HEIGHT_PX = 180;

const RATES: readonly [string, ColumnName][] = [
  ["accepted", "accepted"],
  ["appended", "appended"],
  ["entity updates", "updates"],
];

function latencies(stats: Stats): readonly [string, ColumnName][] {
  return [
    ["accept p99", "accept_p99"],
    [`${syncName(stats).toLowerCase()} p99`, "sync_p99"],
    ["client update p99", "update_p99"],
  ];
}

/** On Apache Kafka a record is stored once the in-sync replicas have it. */
function syncName(stats: Stats): string {
  return stats.log.engine.name === "kafka" ? "Replicated" : "Sync";
}

export function OverviewPage(props: {
  stats: Remote<Stats>;
  samples: History;
  params: URLSearchParams;
}): ComponentChildren {
  const { stats, samples, params } = props;
  const value = latest(stats);
  return (
    <div class="page">
      <div class="page-head">
        <h1>Overview</h1>
        {value !== null && (
          <p class="facts">
            Version {value.version} · up for {duration(value.uptime_s)} · {bytes(value.rss_bytes)} resident
          </p>
        )}
      </div>
      <RemoteNotice remote={stats} what="the server's figures" />
      {value !== null && (
        <>
          <h2 class="whose">
            Server <small>all tenants</small>
          </h2>
          <Tiles stats={value} />
          <div class="charts">
            <Chart
              title="Records per second"
              times_s={samples.times_s}
              series={series(samples, RATES)}
              format={stepped}
              span_s={HISTORY_S}
              fromZero
              height={CHART_HEIGHT_PX}
            />
            <Chart
              title="Latency"
              times_s={samples.times_s}
              series={series(samples, latencies(value))}
              format={latency}
              span_s={HISTORY_S}
              fromZero
              height={CHART_HEIGHT_PX}
            />
          </div>
          <LogEngineCard engine={value.log.engine} />
          <TopicsTable topics={value.log.topics} params={params} />
        </>
      )}
    </div>
  );
}

function series(samples: History, lines: readonly [string, ColumnName][]): Series[] {
  return lines.map(([label, name]) => ({ label, values: samples.column(name) }));
}

function Tiles({ stats }: { stats: Stats }): ComponentChildren {
  const { log, connect, context, query, memory } = stats;
  return (
    <section class="tiles" aria-label="Figures of the last seconds, all tenants">
      <Tile label="Accepted" value={short(connect.accepted_rate_per_s)} unit="/s">
        {counted(connect.accepted_total, "message")}, {whole(connect.rejected_total)} refused
      </Tile>
      <Tile label="Appended" value={bytes(log.bytes_per_s)} unit="/s">
        {short(log.append_rate_per_s)} records/s
      </Tile>
      <Tile label="Entity updates" value={short(context.updates_rate_per_s)} unit="/s">
        {counted(context.updates_total, "update")}
      </Tile>
      <Tile label="Entities" value={short(context.entities)}>
        {context.latency_ms.p99 === null
          ? "no client updates now"
          : `client updates p99 ${latency(context.latency_ms.p99)}`}
      </Tile>
      <Tile label="Live queries" value={whole(query.live)}>
        {short(query.matched_total)} of {short(query.records_seen_total)} records matched
      </Tile>
      <Tile label="Accept p99" value={orDash(connect.latency_ms.p99)}>
        p50 {orDash(connect.latency_ms.p50)}, max {orDash(connect.latency_ms.max)}
      </Tile>
      <Tile label={`${syncName(stats)} p99`} value={orDash(log.sync_p99_ms)}>
        p50 {orDash(log.sync_p50_ms)}
      </Tile>
      <Tile
        label="Memory budget"
        value={`${memory.budget_bytes > 0 ? Math.round((100 * memory.reserved_bytes) / memory.budget_bytes) : 0} %`}
        share={memory.budget_bytes > 0 ? memory.reserved_bytes / memory.budget_bytes : 0}
      >
        {bytes(memory.reserved_bytes)} of {bytes(memory.budget_bytes)} reserved, in use or not
      </Tile>
    </section>
  );
}

function orDash(value_ms: number | null): string {
  return value_ms === null ? "–" : latency(value_ms);
}
