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
    const label = element("text", { x: LABEL - 8, y: top + group / 2, "text-anchor": "end" }, svg, one.label ?? one.case.split(",")[0]);
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
