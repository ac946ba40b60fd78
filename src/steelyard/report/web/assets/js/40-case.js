// One case in full: what it took, how steadily, since when, in which surroundings, and how to measure it again.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt, doc } = S;
  const REACH = 8;
  const MOST_BINS = 50;
  const PHASES = [["build_time", "build"], ["compile_time", "compile"], ["first_call_time", "first call"], ["warmup_time", "warm-up"], ["time", "steady, one call"]];
  const TILES = ["time", "time_p99", "bandwidth", "bus_bandwidth", "compute", "item_rate", "peak_memory", "energy"];
  const REQUEST_TILES = ["time", "ttft", "itl", "item_rate", "peak_memory"];
  const MEMORY = /memory|bytes/;
  const MOST_TILES = 5;

  // ---- rows of the charts: the same as in report/charts/case.py

  function quantile(ordered, share) {
    const at = (ordered.length - 1) * share;
    const below = ordered[Math.floor(at)];
    return below + (ordered[Math.ceil(at)] - below) * (at - Math.floor(at));
  }

  // A few outliers would squeeze all other samples together.
  function scaleEnds(times) {
    const ordered = [...times].sort((a, b) => a - b);
    const [lower, upper] = [quantile(ordered, 0.25), quantile(ordered, 0.75)];
    const reach = REACH * Math.max(upper - lower, 1e-3 * upper);
    return [Math.max(ordered[0], lower - reach), Math.min(ordered[ordered.length - 1], upper + reach)];
  }

  const stateAt = (samples, at) => (samples.discarded?.[at] ? "discarded" : samples.throttled?.[at] ? "throttled" : "kept");
  const EMPTY = { order: null, time: null, drawn: null, state: null, counts: null, text: null, clock: null, clock_unit: null, clock_text: null };

  function sampleRows(item) {
    const { samples } = item;
    const empty = { ...EMPTY, case: item.id, clock_unit: samples.clock?.unit ?? null };
    const counts = samples.time.map((time, at) => samples.kept || stateAt(samples, at) !== "discarded");
    const counted = samples.time.filter((time, at) => counts[at]);
    const [low, high] = scaleEnds(counted.length ? counted : samples.time);
    return samples.time.map((time, at) => ({
      ...empty, order: samples.index ? samples.index[at] : at, time, drawn: Math.min(Math.max(time, low), high), state: stateAt(samples, at), counts: counts[at], text: fmt.plain(time, samples.unit, 4),
    }));
  }

  function clockRows(item) {
    const { clock } = item.samples;
    if (!clock) return [];
    return clock.values.map((value, at) => ({ ...EMPTY, case: item.id, order: clock.index[at], clock: value, clock_unit: clock.unit, clock_text: fmt.plain(value, clock.unit) }));
  }

  const keptRows = (rows) => rows.filter((row) => row.counts).map(({ time, drawn, text, case: id }) => ({ case: id, time, drawn, text }));

  // Bins of equal width, more of them the more samples there are.
  function binRows(rows) {
    const times = rows.map((row) => row.drawn);
    const [start, end] = [times.reduce((a, b) => Math.min(a, b)), times.reduce((a, b) => Math.max(a, b))];
    const count = Math.min(MOST_BINS, Math.ceil(3 * Math.cbrt(times.length)));
    const width = (end - start) / count;
    const numbers = Array(count).fill(0);
    for (const time of times) numbers[Math.min(count - 1, Math.floor((time - start) / width))] += 1;
    const edge = (at) => start + width * at;
    return end === start ? [] : numbers.map((number, at) => ({ case: rows[0].case, least: edge(at), most: edge(at + 1), number, share: number / times.length, text: `${fmt.plain(edge(at), "s", 4)} to ${fmt.plain(edge(at + 1), "s", 4)}` }));
  }

  function phaseRows(item) {
    const value = (name) => (name === "warmup_time" ? item.effective.warmup_time : item.metrics[name]?.[0]);
    return PHASES.filter(([name]) => fmt.known(value(name))).map(([name, phase]) => ({ case: item.id, phase, seconds: value(name), text: fmt.plain(value(name), "s") }));
  }

  // ---- head

  const fullName = (item) => (item.label.startsWith(item.workload) ? item.label : `${item.workload} ${item.label}`);

  function turn(item) {
    const at = doc.cases.indexOf(item);
    const step = (other, text, rel) => (other ? el("a", { href: S.caseHref(other.id), rel, title: other.id }, text(S.shortName(other.id))) : el("span", { class: "faint" }, text("")));
    return el("nav", { class: "turn", "aria-label": "Neighbouring cases" },
      step(doc.cases[at - 1], (name) => (name ? `← ${name}` : "← first case"), "prev"),
      el("span", { class: "faint" }, `case ${fmt.count(at + 1)} of ${fmt.count(doc.cases.length)}`),
      step(doc.cases[at + 1], (name) => (name ? `${name} →` : "last case →"), "next"));
  }

  function tile(label, value, aside) {
    return el("div", { class: "tile" }, el("div", { class: "tile-label" }, label), el("div", { class: "tile-value" }, value), aside && el("div", { class: "tile-aside" }, aside));
  }

  function metricTile(item, name) {
    const figure = item.metrics[name];
    const n = figure[3] > 1 ? `n = ${fmt.count(figure[3])}` : "";
    return tile(S.capital(fmt.label(name)), S.quantity(fmt.metricParts(item, name)), [n, name === "time" && item.noise ? `noise ${item.noise}` : ""].filter(Boolean).join(" · "));
  }

  function deltaTile(delta) {
    const shown = delta.ratio ? S.badge(delta.verdict, delta.effect) : S.badge(delta.verdict);
    const against = S.caseById(delta.base) && delta.base !== delta.case ? S.caseLink(delta.base) : doc.comparison.base;
    const whose = delta.metric === "time" ? "Against " : `${S.requestNames[delta.metric]} against `;
    return tile([whose, against], shown, delta.ratio ? `${delta.verdict}, ${delta.paired ? "interleaved" : "measured apart"}` : delta.reason);
  }

  function tiles(item) {
    const metrics = (item.metrics.ttft ? REQUEST_TILES : TILES).filter((name) => item.metrics[name]).slice(0, MOST_TILES);
    const delta = S.deltaOf(item.id);
    if (!metrics.length && !delta) return null;
    return el("div", { class: "tiles" }, metrics.map((name) => metricTile(item, name)), delta && deltaTile(delta), S.partDeltas(item.id).map(deltaTile));
  }

  // ---- figures

  function samplesNote(samples, rows) {
    const off = rows.filter((row) => row.drawn !== row.time).length;
    const used = samples.kept ? "Too few samples were undisturbed, so the disturbed ones count here all the same. " : "";
    const kept = samples.time.length < samples.count ? `${fmt.count(samples.time.length)} of ${fmt.count(samples.count)} samples are in this file; the rest is in the run. ` : "";
    return `${used}${kept}${off ? `${fmt.plural(off, "sample")} beyond the scale ${off === 1 ? "is" : "are"} drawn at its edge.` : ""}`;
  }

  function drawSamples(main, item) {
    main.append(el("h2", {}, "Samples"));
    if (!item.samples?.time.length) {
      main.append(el("p", { class: "note" }, item.metrics.time ? "The raw samples are not here: the run came without them, or this report holds none for this case." : "Nothing was timed."));
      return;
    }
    const rows = sampleRows(item);
    const clocks = clockRows(item);
    S.chart(main, clocks.length ? "case-clocks" : "case-samples", [...rows, ...clocks], { note: samplesNote(item.samples, rows) });
    const kept = keptRows(rows);
    const pair = el("div", { class: "grid2 below" });
    main.append(pair);
    const bins = kept.length > 1 ? binRows(kept) : [];
    if (bins.length) {
      S.chart(pair, "case-distribution", bins);
      S.chart(pair, "case-cumulative", kept);
    }
  }

  // Where the case was compared: both sides' samples over each other, and how the ratio settled.
  function drawArms(main, item) {
    const found = ["case-overlay", "case-rebuilds"].map((name) => [name, S.rowsOf(name).filter((row) => row.case === item.id)]).filter(([, rows]) => rows.length);
    if (!found.length) return;
    const { base, effect } = S.deltaOf(item.id);
    const pair = el("div", { class: found.length > 1 ? "grid2" : "narrow" });
    main.append(el("h2", {}, "Against the base"), el("p", { class: "lede" }, el("b", {}, effect), ", against ", S.caseLink(base), "."), pair);
    for (const [name, rows] of found) S.chart(pair, name, rows);
  }

  function memory(item) {
    const names = Object.keys(item.metrics).filter((name) => doc.metrics[name]?.unit === "B" && MEMORY.test(name));
    if (!names.length) return null;
    return el("section", { class: "panel" }, el("h3", {}, "Memory"), S.factList(names.map((name) => [fmt.label(name), S.fmt.metric(item, name)])));
  }

  function drawPhases(main, item) {
    const rows = phaseRows(item);
    const figures = memory(item);
    if (rows.length < 2 && !figures) return;
    const pair = el("div", { class: "grid2" });
    main.append(el("h2", {}, figures ? "Phases and memory" : "Phases"), pair);
    if (rows.length > 1) S.chart(pair, "case-phases", rows);
    S.fill(pair, [figures]);
  }

  function changeItem(change) {
    const verdict = change.ratio > 1 ? "slower" : "faster";
    return el("li", {}, S.badge(verdict, fmt.change(change.ratio, change.low, change.high)), ` from ${fmt.date(change.created)} (run ${change.run}), `, S.commitsCell(change), change.others.length ? el("span", { class: "faint" }, `; also changed: ${change.others.join(", ")}`) : "", ".");
  }

  function drawHistory(main, item) {
    const series = S.seriesOf(item.id);
    const elsewhere = doc.front && el("p", { class: "note" }, el("a", { href: `${doc.front}#/history?case=${encodeURIComponent(item.id)}` }, "History over all runs"));
    if (!series || series.points.length < 2) {
      S.fill(main, [elsewhere && [el("h2", {}, "History"), elsewhere]]);
      return;
    }
    main.append(el("h2", {}, "History"));
    S.chart(main, "history-series", S.seriesRows(series), {});
    const words = series.changes.length ? el("ul", { class: "plain-list" }, series.changes.map(changeItem)) : el("p", { class: "note" }, `No change of level among ${fmt.plural(series.points.length, "run")}.`);
    S.fill(main, [words, el("p", { class: "note" }, S.link("All series", "history", { case: item.id })), elsewhere]);
  }

  // ---- tables and facts

  function drawMetrics(main, item) {
    const rows = Object.entries(item.metrics).map(([name, [value, low, high, n]]) => ({ name, value, low, high, n, ...doc.metrics[name] }));
    if (!rows.length) return;
    main.append(el("h2", {}, "All figures"));
    S.table(main, {
      name: "metrics", noun: "figure", caption: "All figures of this case", rows, key: (row) => row.name,
      columns: [
        { key: "label", title: "Figure", head: true, value: (row) => fmt.label(row.name), cell: (row) => S.capital(fmt.label(row.name)) },
        { key: "value", title: "Value ± 95 %", numeric: true, cell: (row) => S.quantity(fmt.metricParts(item, row.name)) },
        { key: "low", title: "From", numeric: true, cell: (row) => fmt.end(row.name, row.low) },
        { key: "high", title: "To", numeric: true, cell: (row) => fmt.end(row.name, row.high) },
        { key: "n", title: "n", numeric: true, cell: (row) => (row.n ? fmt.count(row.n) : null) },
        { key: "better", title: "Better", value: (row) => (row.better === "none" ? "" : row.better) },
        { key: "name", title: "Name", cell: (row) => el("code", {}, row.name) },
        { key: "unit", hidden: true },
      ],
    });
  }

  // What the compiler made of the case and of its base, where both were kept.
  function drawPrograms(main, item) {
    for (const { name, words, changes } of item.programs || []) {
      const rows = changes.map(([group, what, base, head]) => ({ group, what, base, head, change: head - base }));
      main.append(el("h2", {}, "Program against the base"), el("p", { class: "note" }, el("code", {}, name), `: ${words}.`));
      S.table(main, {
        name: `programs-${name}`, noun: "count", caption: "What the compiler made, base and head", rows, key: (row) => `${row.group} ${row.what}`,
        columns: [
          { key: "group", title: "Of", value: (row) => row.group },
          { key: "what", title: "Name", head: true, cell: (row) => el("code", {}, row.what) },
          { key: "base", title: "Base", numeric: true, cell: (row) => fmt.count(row.base) },
          { key: "head", title: "Head", numeric: true, cell: (row) => fmt.count(row.head) },
          { key: "change", title: "Change", numeric: true, cell: (row) => `${row.change > 0 ? "+" : row.change < 0 ? "−" : ""}${fmt.count(Math.abs(row.change))}` },
        ],
      });
    }
  }

  function verification(item) {
    const found = item.verification;
    if (!found || found.status === "none") return [["result", ["not verified", found?.message ? `: ${found.message}` : ""]], ["checked", (found?.checks || []).join("; ")]];
    const sizes = [["absolute", found.max_abs], ["relative", found.max_rel]].filter(([, size]) => fmt.known(size)).map(([name, size]) => `${name} ${size.toPrecision(2)}`);
    const allowed = [["rtol", found.rtol], ["atol", found.atol]].filter(([, size]) => fmt.known(size)).map(([name, size]) => `${name} ${size}`);
    const same = found.identical && found.status === "passed" ? "bit-identical: nothing was lost, or both are the same code" : "";
    return [["result", S.badge(found.status === "passed" ? "ok" : "wrong", found.status)], ["against", found.against], ["largest error", same || sizes.join(", ")], ["allowed", allowed.join(", ")], ["message", found.message], ["checked", (found.checks || []).join("; ")]];
  }

  const panel = (title, ...content) => el("section", { class: "panel", "aria-label": title }, el("h3", {}, title), content);
  const valueText = (value) => (value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));
  const settingText = (name, value) => (name.endsWith("_time") && fmt.known(value) ? fmt.plain(value, "s") : valueText(value));
  const pairs = (table) => Object.entries(table || {}).map(([name, value]) => [fmt.words(name), settingText(name, value)]);

  function attachments(item) {
    if (!item.attachments.length) return null;
    const row = ({ kind, path, sha256, href }) => [kind, [href ? el("a", { href, download: true }, path) : path, " ", el("span", { class: "faint", title: sha256 }, `sha256 ${sha256.slice(0, 12)}`)]];
    return panel("Attachments", S.factList(item.attachments.map(row)));
  }

  // Nothing is said where the run before is not known.
  function differences(item) {
    if (!item.differs) return null;
    if (item.differs.length) return [el("p", { class: "note" }, "Not the same as in the run before:"), el("ul", { class: "plain-list" }, item.differs.map((text) => el("li", {}, text)))];
    return el("p", { class: "note" }, "The same as in the run before.");
  }

  function roof(item) {
    if (!item.roof) return null;
    const { intensity, achieved, bound, share, peak_compute: compute, peak_bandwidth: bandwidth, dtype } = item.roof;
    const time = item.metrics.time?.[0];
    const told = [
      ["bound by", bound],
      ["reached", `${fmt.plain(achieved, "FLOP/s")}${fmt.known(share) ? `, ${fmt.percent(share)} of the roof` : ""}`],
      ["predicted", fmt.known(share) && fmt.known(time) ? `${fmt.plain(share * time, "s")} at best; measured ${fmt.plain(time, "s")}` : ""],
      ["intensity", `${fmt.plain(intensity, "")} FLOP/B`],
      ["roofs", [compute && fmt.plain(compute, "FLOP/s"), bandwidth && fmt.plain(bandwidth, "B/s"), dtype].filter(Boolean).join(" · ")],
    ];
    return panel("Roofline", S.factList(told), el("p", { class: "note" }, S.link("Roofline", "roofline")));
  }

  function identity(item) {
    const run = doc.runs[item.run];
    const machine = doc.machines[run?.machine];
    return [
      ["workload", item.workload], ...pairs(item.params), ["backend", item.backend], ["variant", item.variant], ["mode", item.mode], ["device", item.device], ["threads", item.threads ?? ""], ["other programs", fmt.known(item.other_load) ? `kept ${fmt.plain(item.other_load, "")} CPUs busy while it was timed` : ""], ["ranks", item.ranks > 1 ? item.ranks : ""], ["environment", item.env], ...pairs(item.flags),
      ["run", run && [run.href ? el("a", { href: run.href }, run.id) : run.id, `/${item.number}`, el("span", { class: "faint" }, ` · ${fmt.date(run.created)} · ${fmt.commit(run.commit, run.dirty)}`)]],
      ["machine", machine?.name],
    ];
  }

  function drawFacts(main, item) {
    main.append(el("h2", {}, "What, where and how"));
    S.fill(main, [el("div", { class: "masonry" },
      panel("Case and run", S.factList(identity(item))),
      panel("Verification", S.factList(verification(item))),
      panel("Environment", differences(item), S.facts(pairs(doc.environments[item.environment]), 10)),
      item.machine_meanwhile && panel("The machine while measuring", S.factList(pairs(item.machine_meanwhile))),
      Object.keys(item.effective).length > 0 && panel("Effective settings", S.facts(pairs(item.effective), 12)),
      roof(item), attachments(item))]);
  }

  // Another tool's case has no command of ours.
  function repeat(item) {
    return item.repeat ? [el("h2", {}, "Measure it again"), el("div", { class: "command" }, el("code", {}, item.repeat), S.copy(item.repeat))] : [];
  }

  function draw(main, state) {
    const item = S.caseById(state.rest);
    if (!item && !state.rest) return S.go(S.caseHref(doc.cases[0].id), { replace: true });
    if (!item) {
      main.append(el("h1", {}, "No such case"), el("p", {}, "This report has no case ", el("code", {}, state.rest), ". ", S.link("All cases", "overview")));
      return null;
    }
    S.fill(main, [turn(item), el("h1", {}, S.breakable(fullName(item))), el("p", { class: "lede" }, S.badge(item.status), " ", el("code", { class: "id" }, item.id))]);
    if (item.reason) main.append(el("p", { class: "notice" }, item.reason));
    if (item.traceback?.length) main.append(el("details", { class: "traceback" }, el("summary", {}, "Traceback"), el("pre", { class: "scroll", tabindex: "0" }, item.traceback.join("\n"))));
    S.fill(main, [tiles(item), ...repeat(item)]);
    S.drawRequests(main, item);
    S.drawReplay(main, item);
    drawArms(main, item);
    drawSamples(main, item);
    drawPhases(main, item);
    drawHistory(main, item);
    drawPrograms(main, item);
    drawMetrics(main, item);
    drawFacts(main, item);
    return null;
  }

  S.scaleEnds = scaleEnds;
  S.page("case", "Case", 90, { when: () => doc.cases.length > 0, draw });
})();
