const delivered = ({ conditions: { expected_rows: all, missing } }) => all && (all - missing) / all * 100;
const records = (one) => one.conditions.bytes_per_query === undefined ? one.rate_per_s : undefined;
const of = (name) => (one) => one.conditions[name];
const shown = (value) => value === undefined || value === null ? "" : number(value);
bars("From a record's emission to the answer, ms", "ms", [
  { name: "p50", color: "var(--one)", of: (one) => (one.conditions.record_sent_to_answer_ms ?? one.latency_ms)?.p50 },
  { name: "p99", color: "var(--two)", of: (one) => (one.conditions.record_sent_to_answer_ms ?? one.latency_ms)?.p99 },
]);
bars("Planted rows that arrived, per cent", "%", [
  { name: "arrived", color: "var(--one)", of: delivered },
]);
bars("Cores in use", "", [
  { name: "query threads", color: "var(--one)", of: of("query_threads_cores") },
  { name: "whole server", color: "var(--two)", of: of("server_cores") },
]);
bars("Records a second", "/s", [
  { name: "here", color: "var(--one)", of: records },
  { name: "published, on 219.5 cores", color: "var(--three)", of: (one) => one.peer?.rate_per_s || undefined },
]);
bars("Bytes of memory of an idle query", "B", [
  { name: "with its part of the client's connection", color: "var(--one)", of: of("bytes_per_query") },
]);
table(["test", "records/s", "p50 ms", "p99 ms", "max ms", "query cores", "server cores", "RSS MiB", "errors"],
  figures.cases.map((one) => [one.case, shown(records(one)), shown(one.latency_ms?.p50), shown(one.latency_ms?.p99),
    shown(one.latency_ms?.max), shown(one.conditions.query_threads_cores), shown(one.conditions.server_cores), shown(one.rss_mib), one.errors]),
  figures.cases.map((one) => one.errors > 0 || one.generator_bottleneck));
