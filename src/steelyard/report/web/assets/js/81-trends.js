// PyTorch/XLA's three plots over the nights: the spread of speedups (histogram), their mean (speedup), and the newest run (latest).
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt } = S;
  const MOST_STACKS = 6;
  const MARGIN = 1.03;
  const LACKING = 0.8;
  const REACH = 3;

  const inside = (point, { from, to }) => {
    const day = String(point.created).slice(0, 10);
    return (!from || day >= from) && (!to || day <= to);
  };

  // Points with far fewer models than the runs around them, as after a night that was cut short, say nothing about a trend.
  function marked(points, columns) {
    return columns.flatMap((column) => {
      const mine = points.filter((point) => point.column === column && point.n);
      const near = (at) => mine.slice(Math.max(0, at - REACH), at + REACH + 1).map((point) => point.n).sort((a, b) => a - b);
      return mine.map((point, at) => ({ ...point, partial: point.n < LACKING * near(at)[near(at).length >> 1] }));
    });
  }

  // Ends that leave some room, so that a trend of nothing does not fill the chart.
  const least = (values) => values.reduce((one, other) => Math.min(one, other), Infinity);
  const most = (values) => values.reduce((one, other) => Math.max(one, other), -Infinity);
  const axis = (lows, highs) => ({ least: least(lows) / MARGIN, most: most(highs) * MARGIN });

  function spreadRows(trends, points, column) {
    const kept = points.filter((point) => point.q50 > 0 && !point.partial);
    const ends = { ...axis(kept.map((point) => point.q10), kept.map((point) => point.q90)), over: trends.baseline };
    const text = (point) => `${fmt.speedup(point.q50)} (8 of 10 between ${fmt.speedup(point.q10)} and ${fmt.speedup(point.q90)})`;
    return kept.filter((point) => point.column === column)
      .map(({ created, run, q10, q25, q50, q75, q90, n, ...rest }) => ({ created, run, column, q10, q25, q50, q75, q90, n, ...ends, text: text({ q10, q50, q90, ...rest }) }));
  }

  function meanRows(trends, points) {
    const kept = points.filter((point) => point.mean > 0);
    const means = kept.map((point) => point.mean);
    const common = { ...axis(means, means), over: trends.baseline };
    return kept.map(({ created, run, column, mean, n, partial }) => ({ created, run, column, mean, n, partial, ...common, text: fmt.speedup(mean) }));
  }

  function latestRows(trends, columns) {
    return columns.flatMap((column) => trends.latest.filter((item) => item.column === column && item.speedup > 0).sort((a, b) => a.speedup - b.speedup)
      .map(({ row, speedup, low, high }, at) => ({ column, rank: at + 1, row, speedup, low, high, over: trends.baseline, text: fmt.speedup(speedup, low, high) })));
  }

  // Means over different sets of models are not one line; whoever reads it should know.
  function unequal(points) {
    const sizes = [...new Set(points.filter((point) => point.n).map((point) => point.n))].sort((a, b) => a - b);
    return sizes.length > 1 ? `The number of models is not the same in all runs (${sizes[0]} to ${sizes[sizes.length - 1]}): see n in the data.` : sizes.length ? `n = ${sizes[0]} in every run.` : "";
  }

  S.drawTrends = (box, trends, query) => {
    const { columns, baseline } = trends;
    if (columns.length < 2) return;
    const points = marked(trends.points, columns).filter((point) => inside(point, query));
    const lacking = new Set(points.filter((point) => point.partial).map((point) => point.run)).size;
    const left = lacking ? `${fmt.plural(lacking, "run")} with far fewer models ${lacking === 1 ? "is" : "are"} left out.` : "";
    const others = columns.filter((column) => column !== baseline);
    box.append(el("h2", {}, "Speedups over time"), el("p", { class: "note" }, "All speedups are over the oldest time of ", el("b", {}, baseline), " for the same model, so above 1× is faster than it was then, and its own line shows how far it has moved. The runs were made apart: these ratios are unpaired."));
    if (points.length) S.chart(box, "history-speedup", meanRows(trends, points), { note: unequal(points) });
    const grid = el("div", { class: "grid2 below" });
    box.append(grid);
    const latest = latestRows(trends, columns);
    if (latest.length) S.chart(grid, "history-latest", latest, {});
    for (const column of points.length ? others.slice(0, MOST_STACKS) : []) {
      const rows = spreadRows(trends, points, column);
      if (rows.length) S.chart(grid, "history-quantiles", rows, { title: `Histogram: spread of speedups of ${column}`, file: `history-quantiles-${column}`, note: left });
    }
    if (others.length > MOST_STACKS) box.append(el("p", { class: "faint" }, `Histograms of the first ${MOST_STACKS} of ${others.length} stacks are drawn.`));
  };
})();
