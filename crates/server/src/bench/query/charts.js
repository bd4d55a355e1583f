const LABEL = 150, BAR = 13;

/* Of each case a bar for each series, with its value. */
function bars(title, unit, series) {
  const cases = figures.cases.filter((one) => series.some((of) => of.of(one) !== undefined));
  if (cases.length === 0) return;
  const group = BAR * series.length + 8;
  const svg = drawing(title, series, cases.length * group + 6);
  const highest = Math.max(...cases.flatMap((one) => series.map((of) => of.of(one) ?? 0))) || 1;
  cases.forEach((one, at) => {
    const top = at * group + 6;
    const label = element("text", { x: LABEL - 8, y: top + group / 2, "text-anchor": "end" }, svg, one.case.split(",")[0]);
    element("title", {}, label, one.case);
    series.forEach((of, row) => {
      const value = of.of(one);
      if (value === undefined) return;
      const width = Math.max(1, (W - LABEL - 90) * value / highest), y = top + row * BAR;
      element("rect", { x: LABEL, y, width, height: BAR - 2, fill: of.color }, svg);
      element("text", { x: LABEL + width + 5, y: y + BAR - 4 }, svg, `${number(value)} ${unit}`);
    });
  });
}

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
