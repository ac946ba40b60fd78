// One parameter varied and all else held: a metric over it, a line per variant, and who wins where.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt, doc } = S;
  const WIDE = { x: 8, y: 5 };
  const PARTS = ["workload", "axis", "fixed", "mode"];
  const MOST_CELLS = 20;
  const MOST_MULTIPLES = 24;
  const UNPAIRED = "Measured apart, unpaired, unless the data says side by side: drift can move such ratios.";

  // ---- what the address asks for: each choice narrows the next, and one that no longer fits falls back to the first

  function chosenSweep(query) {
    let left = doc.sweep;
    const choices = PARTS.map((part) => {
      const options = [...new Set(left.map((item) => item[part]))];
      const value = options.includes(query[part]) ? query[part] : options[0];
      left = left.filter((item) => item[part] === value);
      return { part, options, value };
    });
    return { sweep: left[0], choices };
  }

  function select(part, label, options, value, after = []) {
    if (options.length < 2) return null;
    const input = el("select", { id: `sweep-${part}`, name: part, onchange: () => S.go({ ...Object.fromEntries(after.map((other) => [other, ""])), [part]: input.value }) },
      options.map(([option, text]) => el("option", { value: option, selected: option === value }, text)));
    input.value = value;
    return el("div", { class: "field field-select" }, el("label", { for: input.id }, label), input);
  }

  const LABELS = { workload: "Workload", axis: "Over", fixed: "With", mode: "Mode" };

  function toolbar({ sweep, choices }, metric, base) {
    const parts = choices.map(({ part, options, value }, at) => select(part, LABELS[part], options.map((option) => [option, option || "nothing else"]), value, PARTS.slice(at + 1)));
    const metrics = sweep.metrics.map((name) => [name, fmt.label(name)]);
    return el("form", { class: "toolbar", role: "search", onsubmit: (event) => event.preventDefault() }, parts,
      select("metric", "Metric", metrics, metric), select("baseline", "Baseline", sweep.lines.map((line) => [line.name, line.name]), base));
  }

  // ---- rows

  function lineRows(sweep, metric) {
    const common = { unit: doc.metrics[metric]?.unit || "", metric: fmt.label(metric), axis: sweep.axis };
    return sweep.lines.flatMap((line) => line.points.map((point, order) => {
      const item = S.caseById(point.case);
      const figure = item?.metrics[metric];
      if (!figure || !fmt.known(figure[0])) return null;
      const [value, low, high] = figure;
      return { x: point.x, order, line: line.name, value, low, high, ...common, status: item.status, text: fmt.metric(item, metric), case: item.id };
    })).filter(Boolean);
  }

  const wide = (values, factor) => values.length > 0 && Math.min(...values) > 0 && Math.max(...values) >= factor * Math.min(...values);

  function chartName(sweep, rows) {
    const x = sweep.kind === "name" ? "names" : wide(rows.map((row) => row.x), WIDE.x) ? "log" : "linear";
    return `sweep-${x}-${wide(rows.map((row) => row.value), WIDE.y) ? "log" : "linear"}`;
  }

  // How many times better than the baseline; two separate measurements, so the interval reaches as far as both allow.
  function quotient(base, item, metric) {
    const better = doc.metrics[metric]?.better;
    const [before, after] = [base, item].map((one) => (one?.status === "ok" ? one.metrics[metric] : null));
    if (!before || !after || !(before[0] > 0) || !(after[0] > 0)) return [null, null, null, null];
    if (base === item) return [1, null, null, null];
    const [top, under] = better === "higher" ? [after, before] : [before, after];
    const whole = [top[1], top[2], under[1], under[2]].every((end) => fmt.known(end) && end > 0);
    return [top[0] / under[0], whole ? top[1] / under[2] : null, whole ? top[2] / under[1] : null, 0];
  }

  // A pair weighed side by side says more than two separate times; the matrix knows those.
  function pairedRatio(base, item) {
    if (!doc.matrix || !base || base === item) return null;
    const at = matrixPlaces().get(item.id);
    const under = matrixPlaces().get(base.id);
    if (!at || !under || at[0] !== under[0]) return null;
    const found = doc.matrix.by_baseline[doc.matrix.columns[under[1]]]?.speedups[at[0]][at[1]];
    return found && found[3] && item.status === "ok" ? found : null;
  }

  let places = null;
  function matrixPlaces() {
    places ||= new Map(doc.matrix.cells.flatMap((row, at) => row.map((cell, column) => (cell ? [cell.case, [at, column]] : null)).filter(Boolean)));
    return places;
  }

  function heatRows(sweep, metric, base) {
    const held = new Map((sweep.lines.find((line) => line.name === base)?.points || []).map((point) => [point.x, S.caseById(point.case)]));
    const xs = [...new Set(sweep.lines.flatMap((line) => line.points.map((point) => point.x)))];
    if (sweep.kind === "number") xs.sort((a, b) => a - b);
    return sweep.lines.flatMap((line, order) => line.points.map((point) => {
      const item = S.caseById(point.case);
      if (!item) return null;
      const [speedup, low, high, paired] = (metric === "time" && pairedRatio(held.get(point.x), item)) || quotient(held.get(point.x), item, metric);
      const shown = item.metrics[metric] ? fmt.metric(item, metric) : "–";
      const text = item.status !== "ok" ? S.badge(item.status).textContent : speedup ? (paired === null ? "baseline" : metric === "time" ? S.held(held.get(point.x).id, item.id, [speedup, low, high, paired])[1] : fmt.speedup(speedup, low, high)) : shown;
      return { row: line.name, column: String(point.x), row_order: order, column_order: xs.indexOf(point.x), speedup, low, high, measured: S.measuredHow(paired), text, status: item.status, time: shown, case: item.id };
    })).filter(Boolean);
  }

  // The speedups as lines over the parameter; the baseline is the line at one, so that each variant keeps its colour.
  function speedupRows(sweep, base, cells) {
    const xs = [...new Set(sweep.lines.flatMap((line) => line.points.map((point) => point.x)))].sort((a, b) => a - b);
    const ahead = cells.filter((cell) => cell.speedup !== null);
    return ahead.every((cell) => cell.row === base) ? [] : ahead.map(({ row, column_order: order, speedup, low, high, measured, text, status, case: id }) => ({ x: xs[order], order, line: row, speedup, low, high, axis: sweep.axis, over: base, measured, text, status, case: id }));
  }

  // ---- page

  // Whether the first of two is surely better: by their intervals, or by their values where there are none.
  function apart(first, second, higher) {
    const [under, over] = higher ? [second.high, first.low] : [first.high, second.low];
    return fmt.known(under) && fmt.known(over) ? under < over : first.value !== second.value;
  }

  function verdict(sweep, metric, rows) {
    const better = doc.metrics[metric]?.better;
    if (sweep.lines.length < 2 || better === "none") return "";
    const higher = better === "higher";
    const there = new Map();
    for (const row of rows.filter((one) => one.status === "ok")) there.set(row.x, [...(there.get(row.x) || []), row]);
    const ranked = [...there.values()].filter((several) => several.length > 1).map((several) => several.sort((a, b) => (higher ? b.value - a.value : a.value - b.value)));
    const won = ranked.filter(([first, second]) => apart(first, second, higher));
    const told = [...S.counted(won, ([first]) => first.line)].sort((a, b) => b[1] - a[1]).map(([line, count]) => `${line} at ${count}`);
    const close = ranked.length - won.length;
    return ranked.length ? ` Best of all at ${fmt.plural(ranked.length, "value")} of ${sweep.axis}: ${[...told, close && `too close to call at ${close}`].filter(Boolean).join(", ")}.` : "";
  }

  const missing = (sweep) => sweep.lines.flatMap((line) => line.points.filter((point) => !point.ok).map((point) => ({ line: line.name, x: point.x, item: S.caseById(point.case) }))).filter(({ item }) => item);

  function notes(sweep) {
    const found = missing(sweep);
    if (!found.length) return null;
    const one = ({ line, x, item }) => el("li", {}, S.caseLink(item.id, `${line} at ${sweep.axis} = ${x}`), " ", S.badge(item.status), item.reason ? el("span", { class: "reason" }, item.reason) : null);
    return el("section", { class: "below", "aria-label": "Points without a right answer" }, el("h2", {}, `${fmt.plural(found.length, "point")} without a right answer`), el("ul", {}, found.slice(0, 50).map(one)),
      found.length > 50 && el("p", { class: "faint" }, `and ${found.length - 50} more.`));
  }

  // Where cells would be too narrow for their words the figure scrolls; of very many values it shows some, evenly spaced.
  function drawHeat(box, rows, options) {
    const count = 1 + Math.max(...rows.map((row) => row.column_order));
    const step = Math.ceil(count / MOST_CELLS);
    const shown = step > 1 ? rows.filter((row) => row.column_order % step === 0) : rows;
    const apart = rows.some((row) => row.measured === "apart");
    const note = [apart && UNPAIRED, step > 1 && `One in ${step} of ${count} values is shown; all are in the data.`].filter(Boolean).join(" ");
    S.chart(box, "sweep-heat", shown, { ...options, note, data: rows, heading: "h2" });
    box.lastElementChild.style.setProperty("--cells", Math.ceil(count / step));
  }

  // Every other sweep over the same parameter as a picture of its own: workloads and dtypes beside each other, each with who is best where.
  function drawMultiples(main, chosen, metric) {
    const others = doc.sweep.filter((sweep) => sweep !== chosen && sweep.axis === chosen.axis && sweep.kind === "number" && chosen.kind === "number" && sweep.metrics.includes(metric));
    if (!others.length) return;
    const grid = el("div", { class: "grid3 multiples" });
    const more = others.length > MOST_MULTIPLES && el("p", { class: "note" }, `The first ${MOST_MULTIPLES} of ${fmt.count(others.length)}; the choices above lead to the others.`);
    main.append(el("section", { class: "below", "aria-label": `Other sweeps over ${chosen.axis}` }, el("h2", {}, `Other sweeps over ${chosen.axis}`), grid, more));
    others.slice(0, MOST_MULTIPLES).forEach((sweep, at) => {
      const lines = sweep.lines.map((line) => line.name);
      const base = sweep.baseline || lines[0];
      const rows = lineRows(sweep, metric);
      const cells = metric === "time" && lines.length > 1 ? heatRows(sweep, metric, base) : [];
      const ahead = cells.some((cell) => cell.speedup) ? speedupRows(sweep, base, cells) : [];
      const shown = ahead.length > 1 ? ahead : rows;
      if (!shown.length) return;
      const name = ahead.length > 1 ? `sweep-speedup-${wide(shown.map((row) => row.x), WIDE.x) ? "log" : "linear"}` : chartName(sweep, rows);
      const held = [sweep.fixed, sweep.mode].filter(Boolean).join(", ");
      const reading = `${ahead.length > 1 ? `Speedup over ${base}` : fmt.label(metric)}, with ${held || "nothing else held"}.${verdict(sweep, metric, rows)}`;
      S.chart(grid, name, shown, { title: sweep.workload, file: `sweep-${at}`, heading: "h3", reading, height: 170, click: () => S.go(Object.fromEntries(PARTS.map((part) => [part, sweep[part]]))) });
    });
  }

  function draw(main, state) {
    const found = chosenSweep(state.query);
    const { sweep } = found;
    const names = sweep.metrics;
    const metric = names.includes(state.query.metric) ? state.query.metric : names[0] || "time";
    const lines = sweep.lines.map((line) => line.name);
    const base = lines.includes(state.query.baseline) ? state.query.baseline : sweep.baseline || lines[0];
    const rows = lineRows(sweep, metric);
    const held = [sweep.fixed, sweep.mode].filter(Boolean).join(", ");
    main.append(el("h1", {}, "Sweep"), el("p", { class: "lede" }, el("b", {}, sweep.workload), `: ${fmt.label(metric)} over ${sweep.axis}${held ? `, with ${held}` : ""}.${verdict(sweep, metric, rows)}`), toolbar(found, metric, base));
    const cells = doc.metrics[metric]?.better === "none" || lines.length < 2 ? [] : heatRows(sweep, metric, base);
    const heat = cells.some((cell) => cell.speedup) ? cells : [];
    const xs = [...new Set(rows.map((row) => row.x))];
    const aside = el("div", { class: "below" });
    const box = el("div", { class: "grid2" });
    main.append(box, aside);
    const click = (datum) => datum.case && S.go(S.caseHref(datum.case));
    const about = S.capital(fmt.label(metric));
    if (rows.length) S.chart(box, chartName(sweep, rows), rows, { title: `${about} over ${sweep.axis}`, file: "sweep", heading: "h2", click, signals: sweep.kind === "number" && xs.length <= 16 ? { ticks: xs.sort((a, b) => a - b) } : {} });
    else box.append(el("p", { class: "notice" }, names.length ? `No point of this sweep has a figure for “${fmt.label(metric)}”.` : "Nothing here gave a time: see why below."));
    const ahead = metric === "time" && sweep.kind === "number" ? speedupRows(sweep, base, heat) : [];
    if (ahead.length > 1) S.chart(box, `sweep-speedup-${wide(xs, WIDE.x) ? "log" : "linear"}`, ahead, { title: `Speedup over ${base}, by ${sweep.axis}`, file: "sweep-speedup", heading: "h2", click, signals: xs.length <= 16 ? { ticks: xs.sort((a, b) => a - b) } : {} });
    if (heat.length) drawHeat(aside, heat, { click, height: lines.length * 34, title: metric === "time" ? `Speedup over ${base}` : `${about}: times better than ${base}` });
    S.fill(aside, [notes(sweep)]);
    drawMultiples(main, sweep, metric);
  }

  S.sweepRows = lineRows;
  S.page("sweep", "Sweep", 40, { when: () => Boolean(doc.sweep && doc.sweep.length), draw });
})();
