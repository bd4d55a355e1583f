const steps = figures.cases.map((step, at) => ({
  step: at + 1, devices: step.conditions.simulated.devices, nominal: step.conditions.nominal_per_s,
  received: step.conditions.received_per_s, failed: step.conditions.failed_share * 100, latency: step.latency_ms,
  cores: step.conditions.server_cores, rss: step.rss_mib, passes: step.conditions.passes,
}));

function chart(title, unit, lines, options = {}) {
  const svg = drawing(title, lines, H);
  const highest = Math.max(options.least ?? 0, ...lines.flatMap((line) => steps.map(line.of))) || 1;
  const tick = round(highest / 5), top = Math.ceil(highest / tick - 0.001) * tick;
  const x = (at) => LEFT + (W - LEFT - RIGHT) * (steps.length < 2 ? 0.5 : at / (steps.length - 1));
  const y = (value) => H - BOTTOM - (H - TOP - BOTTOM) * value / top;
  for (let value = 0; value <= top * 1.001; value += tick) {
    element("line", { x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value), stroke: "var(--line)" }, svg);
    element("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, svg, number(value));
  }
  const every = Math.ceil(steps.length / 8);
  steps.forEach((step, at) => {
    if (at % every === 0) {
      element("text", { x: x(at), y: H - BOTTOM + 15, "text-anchor": "middle" }, svg, number(step.devices));
    }
  });
  element("text", { x: (LEFT + W) / 2, y: H - 4, "text-anchor": "middle" }, svg, "devices");
  for (const line of lines) {
    const points = steps.map((step, at) => `${x(at)},${y(line.of(step))}`).join(" ");
    const dashes = line.dashed ? { "stroke-dasharray": "5 4" } : {};
    element("polyline", { points, fill: "none", stroke: line.color, "stroke-width": 2, ...dashes }, svg);
    steps.forEach((step, at) => {
      const fill = step.passes ? line.color : "var(--bad)";
      const dot = element("circle", { cx: x(at), cy: y(line.of(step)), r: line.dashed ? 0 : 3, fill }, svg);
      element("title", {}, dot, `${line.name}: ${number(line.of(step))} ${unit}, ${number(step.devices)} devices`);
    });
  }
}

if (steps.length > 0) {
  chart("Devices in each step", "", [{ name: "devices", color: "var(--one)", of: (s) => s.devices }]);
  chart("Messages received a second", "/s", [
    { name: "received", color: "var(--one)", of: (s) => s.received },
    { name: "nominal", color: "var(--two)", of: (s) => s.nominal, dashed: true },
  ]);
  chart("Failed messages, per cent", "%", [
    { name: "failed", color: "var(--one)", of: (s) => s.failed },
    { name: "limit", color: "var(--bad)", of: () => 2, dashed: true },
  ], { least: 2.5 });
  chart("Latency of accepted messages, ms", "ms", [
    { name: "p50", color: "var(--one)", of: (s) => s.latency.p50 },
    { name: "p99", color: "var(--two)", of: (s) => s.latency.p99 },
    { name: "p99.9", color: "var(--three)", of: (s) => s.latency.p99_9 },
  ]);
  chart("Cores that the server used", "", [{ name: "cores", color: "var(--one)", of: (s) => s.cores }]);
  const columns = ["step", "devices", "received/s", "of nominal", "failed", "p50 ms", "p99 ms", "p99.9 ms", "server cores", "RSS MiB", ""];
  const rows = steps.map((s) => [s.step, number(s.devices), number(s.received), number(s.received / s.nominal * 100) + " %",
    number(s.failed) + " %", number(s.latency.p50), number(s.latency.p99), number(s.latency.p99_9), number(s.cores),
    number(s.rss), s.passes ? "passed" : "failed"]);
  table(columns, rows, steps.map((step) => !step.passes));
}
