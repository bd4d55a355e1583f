for (const one of figures.cases) one.label = one.case.replace("six stages, ", "").replace("batch ", "").slice(0, 28);
const of = (name) => (one) => one.conditions[name] ?? undefined;
const shown = (value) => value === undefined || value === null ? "" : number(value);
const isJob = (one) => one.conditions.task_executions_per_s !== undefined;
bars("Records end to end a second per core used", "/s", [
  { name: "job", color: "var(--one)", of: (one) => one.per_core_per_s ?? undefined },
  { name: "bare loop", color: "var(--two)", of: (one) => one.peer?.cpu_s_per_million ? 1e6 / one.peer.cpu_s_per_million : undefined },
]);
bars("Task executions a second per core used", "/s", [
  { name: "here", color: "var(--one)", of: of("task_executions_per_core_per_s") },
  { name: "Onyx 0.8.1, published, per vCPU", color: "var(--three)", of: (one) => isJob(one) ? 36000 : undefined },
]);
bars("Latency, ms", "ms", [
  { name: "p50", color: "var(--one)", of: (one) => one.latency_ms?.p50 },
  { name: "p99", color: "var(--two)", of: (one) => one.latency_ms?.p99 },
  { name: "p99.9", color: "var(--three)", of: (one) => one.latency_ms?.p99_9 },
]);
bars("Share of the bare loop", "", [
  { name: "ratio", color: "var(--one)", of: (one) => one.peer?.name === "bare loop" ? one.ratio ?? undefined : undefined },
]);
table(["case", "records/s", "per core/s", "tasks/s", "p50 ms", "p99 ms", "p99.9 ms", "cores", "RSS MiB", "CPU s/M", "peer", "peer/s", "ratio"],
  figures.cases.map((one) => [one.case, shown(one.rate_per_s), shown(one.per_core_per_s), shown(one.conditions.task_executions_per_s),
    shown(one.latency_ms?.p50), shown(one.latency_ms?.p99), shown(one.latency_ms?.p99_9), isJob(one) ? shown(one.conditions.cores_used) : "",
    shown(one.rss_mib), shown(one.cpu_s_per_million), one.peer?.name ?? "", shown(one.peer?.rate_per_s), shown(one.ratio)]),
  figures.cases.map((one) => one.errors > 0 || one.generator_bottleneck));
