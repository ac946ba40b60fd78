// Text generation: every variant's times with a verdict on each, when tokens came, how their times are spread, tokens per second over the batch.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt, doc } = S;
  const PARTS = ["ttft", "itl"];
  const TIMES = ["time", ...PARTS];
  const NAMES = { time: "E2E", ttft: "TTFT", itl: "ITL" };
  const BATCH = "batch";
  const RATE = "item_rate";
  const MOST_POINTS = 4;

  const points = () => doc.generation.points;
  const casesOf = (point) => point.cases.map((item) => S.caseById(item.case)).filter(Boolean);
  const pointOf = (id) => doc.generation?.points.find((point) => point.cases.some((item) => item.case === id));

  // ---- rows of the charts: the same as in report/charts/generation.py

  function trackRows(item, times, track) {
    const common = { case: item.case, line: item.line, track };
    const after = (at) => (at ? `, ${fmt.plain(times[at] - times[at - 1], "s")} after the one before` : "");
    const rows = times.map((time, at) => ({ ...common, kind: at ? "token" : "first", token: at + 1, time, text: `token ${at + 1} at ${fmt.plain(time, "s")}${after(at)}` }));
    return [...rows, { ...common, kind: "end", token: null, time: item.end, text: `ended at ${fmt.plain(item.end, "s")}` }];
  }

  function timelineRows(cases) {
    return cases.flatMap((item) => (item.tokens || []).flatMap((times, row, all) => trackRows(item, times, all.length === 1 ? item.line : `${item.line}, row ${row + 1}`)));
  }

  function spreadRows(cases, part) {
    const known = cases.filter((item) => item[part].length);
    const ends = known.map((item) => S.scaleEnds(item[part]));
    const [low, high] = [Math.min(...ends.map((end) => end[0])), Math.max(...ends.map((end) => end[1]))];
    return known.flatMap((item) => {
      const [values, n] = [item[part], item.n[part]];
      const rank = (at) => (n === values.length ? at : Math.floor((at * (n - 1)) / (values.length - 1)));
      return values.map((time, at) => ({ case: item.case, line: `${item.line}, n = ${n}`, time, drawn: Math.min(Math.max(time, low), high), share: (rank(at) + 1) / n, text: fmt.plain(time, "s", 4) }));
    });
  }

  // Lines are called as in the other figures: without the backend, where all have one.
  function throughputRows(sweep) {
    const rows = S.sweepRows(sweep, RATE);
    const backends = new Set(rows.map((row) => row.line.split("/")[0]));
    return backends.size > 1 ? rows : rows.map((row) => ({ ...row, line: row.line.slice(row.line.indexOf("/") + 1) }));
  }

  // ---- figures

  const toCase = (datum) => datum.case && S.go(S.caseHref(datum.case));

  function drawTimes(box, cases, name, heading) {
    const file = (chart) => `${chart}-${name}`;
    const tokens = timelineRows(cases);
    if (tokens.length) S.chart(box, "generation-timeline", tokens, { click: toCase, heading, file: file("timeline") });
    const pair = el("div", { class: "grid2 below" });
    box.append(pair);
    for (const part of PARTS) {
      const rows = spreadRows(cases, part);
      if (rows.length) S.chart(pair, `generation-${part}`, rows, { click: toCase, heading, file: file(part), note: spreadNote(cases, part) });
    }
  }

  function spreadNote(cases, part) {
    const thinned = cases.filter((item) => item[part].length < item.n[part]);
    return thinned.length ? `${fmt.count(thinned[0][part].length)} of a variant are in this file, evenly chosen; the rest is in the run.` : "";
  }

  function drawThroughput(main) {
    const generated = new Set(points().flatMap((point) => point.cases.map((item) => item.case)));
    const ours = (sweep) => sweep.axis === BATCH && sweep.lines.some((line) => line.points.some((point) => generated.has(point.case)));
    const found = (doc.sweep || []).filter(ours).map((sweep) => [sweep, throughputRows(sweep)]).filter(([, rows]) => rows.length);
    if (!found.length) return;
    main.append(el("h2", {}, "Throughput against batch"));
    const box = el("div", { class: found.length > 1 ? "grid2" : "" });
    main.append(box);
    for (const [sweep, rows] of found) {
      const name = [sweep.workload, sweep.fixed].filter(Boolean).join(" ");
      const ticks = [...new Set(rows.map((row) => row.x))].sort((a, b) => a - b);
      S.chart(box, "generation-throughput", rows, { click: toCase, title: found.length > 1 ? name : "Tokens per second", file: `throughput-${name}`, signals: { ticks } });
    }
  }

  function drawRoofline(main) {
    const rows = doc.generation.roofline;
    if (!rows.length) return;
    main.append(el("h2", {}, "Prefill and decode on the roofline"));
    S.chart(main, "generation-roofline", rows, { click: toCase, title: "Roofline of both phases" });
  }

  // ---- the table: every time, and the verdict on each

  const deltaOf = (id, metric) => doc.comparison?.deltas.find((delta) => delta.case === id && delta.metric === metric);

  function verdict(delta) {
    if (!delta) return null;
    return el("span", { class: "cell-aside" }, delta.ratio ? S.badge(delta.verdict, delta.effect) : S.badge(delta.verdict));
  }

  function timeColumn(name, cases) {
    const ratio = { key: `${name}_ratio`, hidden: true, value: (item) => deltaOf(item.id, name)?.ratio ?? null };
    const effect = { key: `${name}_effect`, hidden: true, value: (item) => deltaOf(item.id, name)?.effect ?? null };
    const shown = { key: name, title: NAMES[name], numeric: true, value: (item) => item.metrics[name]?.[0] ?? null, cell: (item) => item.metrics[name] && [S.quantity(fmt.metricParts(item, name)), verdict(deltaOf(item.id, name))] };
    return [shown, ...(cases.some((item) => deltaOf(item.id, name)) ? [ratio, effect] : [])];
  }

  function columns(cases) {
    return [
      { key: "case", title: "Case", head: true, value: (item) => S.shortName(item.id), cell: (item) => S.caseLink(item.id, S.breakable(S.shortName(item.id))), class: "case-cell" },
      ...TIMES.flatMap((name) => timeColumn(name, cases)),
      { key: RATE, title: "Tokens per second", numeric: true, first: "desc", value: (item) => item.metrics[RATE]?.[0] ?? null, cell: (item) => item.metrics[RATE] && S.quantity(fmt.metricParts(item, RATE)) },
      { key: "n", title: "Requests", numeric: true, value: (item) => item.metrics.ttft?.[3] ?? null },
      { key: "id", hidden: true },
    ];
  }

  // ---- page

  function lede(cases) {
    const told = doc.comparison && cases.some((item) => deltaOf(item.id, "ttft")) ? ` A change is ${doc.comparison.paired ? "of requests that took turns" : "between runs made apart"}, head against base, 99 %.` : "";
    return el("p", { class: "lede" }, "One call is one request: TTFT is the time to its first token, ITL the median time between two of its tokens, E2E the whole.", told);
  }

  function fields() {
    const all = points();
    return [
      { name: "workload", label: "Workload", options: S.distinct(all, (point) => point.workload) },
      { name: "point", label: "Point", options: all.map((point) => point.name) },
    ];
  }

  const chosenPoints = (query) => points().filter((point) => (!query.workload || point.workload === query.workload) && (!query.point || point.name === query.point));

  function draw(main, state) {
    const all = points().flatMap(casesOf);
    main.append(el("h1", {}, "Generation"), lede(all));
    const sync = S.filters(main, fields());
    const list = el("section", { "aria-label": "Times of requests" });
    main.append(list);
    const grid = S.table(list, { name: "requests", caption: "Times of requests", noun: "case", rows: all, key: (item) => item.id, columns: columns(all) });
    const figures = el("div", { class: "stack" });
    main.append(figures);
    drawThroughput(main);
    drawRoofline(main);

    function update(now) {
      sync(now);
      const found = chosenPoints(now.query);
      grid.update(found.flatMap(casesOf), all.length);
      figures.replaceChildren();
      for (const point of found.slice(0, MOST_POINTS)) {
        const box = el("section", { "aria-label": point.name }, el("h2", {}, S.breakable(point.name)));
        figures.append(box);
        drawTimes(box, point.cases, point.name, "h3");
      }
      if (found.length > MOST_POINTS) figures.append(el("p", { class: "note" }, `The first ${MOST_POINTS} of ${fmt.plural(found.length, "point")} are drawn; choose another above.`));
      if (!found.length) figures.append(el("p", { class: "notice" }, "No point matches these filters."));
    }

    update(state);
    return update;
  }

  // What the page of one case shows of its requests.
  function drawRequests(main, item) {
    const point = pointOf(item.id);
    if (!point) return;
    main.append(el("h2", {}, "Requests"));
    const box = el("div");
    main.append(box);
    drawTimes(box, point.cases.filter((one) => one.case === item.id), "case", "h3");
    if (point.cases.length > 1) main.append(el("p", { class: "note" }, S.link("All variants of this point", "generation", { point: point.name })));
  }

  S.page("generation", "Generation", 35, { when: () => Boolean(doc.generation), draw });
  Object.assign(S, { drawRequests, partDeltas: (id) => PARTS.map((part) => deltaOf(id, part)).filter(Boolean), requestNames: NAMES });
})();
