// The first page: the answer in words and as a picture, then every case in one table, then what was measured where.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt, doc } = S;
  const MOST_WARNINGS = 6;
  const MOST_FACTS = 8;
  const MOST_NAMED = 3;
  const MOST_ANSWERED = 24;
  const FILTERS = ["status", "workload", "backend", "variant", "mode", "device"];
  const GRADES = "A is quiet, D is noisy, ? is unknown";
  const TONE_GLYPHS = { good: "✓", bad: "!", mixed: "~", none: "·" };
  const ORDER = ["ok", "wrong", "failed", "oom", "timeout", "crashed", "unsupported", "not_applied", "not_applicable", "skipped"];

  // ---- the top: verdict, warnings, machine, run

  function banner() {
    const { tone, text, sentences } = doc.banner;
    const [first, ...rest] = sentences?.length ? sentences : [text];
    return el("div", { class: `banner banner-${tone}`, id: "banner", "data-tone": tone }, el("span", { class: "banner-glyph", "aria-hidden": "true" }, TONE_GLYPHS[tone] || "·"),
      el("div", {}, el("p", {}, S.breakable(first)), rest.length > 0 && [" ", el("p", { class: "note" }, S.breakable(rest.join(" ")))]));
  }

  function warnings(found, id = "warnings") {
    if (!found.length) return null;
    const items = found.map((text) => el("li", {}, text));
    const rest = items.length > MOST_WARNINGS && el("details", {}, el("summary", {}, `${fmt.plural(items.length - MOST_WARNINGS, "more warning")}`), el("ul", {}, items.slice(MOST_WARNINGS)));
    return el("section", { class: "warnings", id, "aria-label": "Warnings" }, el("h2", {}, "Warnings"), el("ul", {}, items.slice(0, MOST_WARNINGS)), rest);
  }

  const factList = (pairs) => el("dl", { class: "facts" }, pairs.filter(([, text]) => text !== "" && text !== null && text !== undefined).map(([label, text]) => [el("dt", {}, label), el("dd", {}, text)]));

  function facts(pairs, most = MOST_FACTS) {
    const known = pairs.filter(([, text]) => text !== "" && text !== null && text !== undefined);
    const cut = known.length > most + 2 ? most : known.length;
    const rest = known.slice(cut);
    return [factList(known.slice(0, cut)), rest.length > 0 && el("details", {}, el("summary", { class: "more" }, fmt.plural(rest.length, "more fact")), factList(rest))];
  }

  function machineCard(machine) {
    const used = doc.runs.filter((run) => doc.machines[run.machine] === machine).length;
    const aside = doc.machines.length > 1 && el("p", { class: "note" }, fmt.plural(used, "run"));
    return el("section", { class: "panel", "data-machine": machine.key }, el("h2", { class: "card-title" }, machine.name || "Unknown machine"), aside, facts(machine.facts));
  }

  function versions(environment) {
    return Object.entries(environment || {}).map(([name, version]) => `${name} ${version}`).join(" · ");
  }

  function runCard(run) {
    const others = doc.runs.length - 1;
    const left = run.missing.length ? `${fmt.plural(run.missing.length, "planned case")} not measured: ${run.missing.slice(0, MOST_NAMED).join(", ")}${run.missing.length > MOST_NAMED ? " …" : ""}` : "";
    return el("section", { class: "panel", "data-run": run.id }, el("h2", { class: "card-title" }, others ? "Newest run" : "Run"), facts([
      ["run", others ? [run.id, el("span", { class: "faint" }, `  and ${fmt.plural(others, "older one")}`)] : run.id],
      ["made", `${fmt.date(run.created)}${run.sealed ? "" : " · unfinished"}`],
      ["commit", el("span", { title: run.commit || null }, S.commitLink(run.commit, fmt.commit(run.commit, run.dirty)))],
      ["experiment", run.experiment],
      ["versions", versions(run.environment)],
      ["absent", left],
      ["by", run.version && !run.environment?.steelyard ? `Steelyard ${run.version}` : ""],
      ["command", run.command ? el("span", {}, el("code", { class: "command" }, run.command), " ", S.copy(run.command)) : ""],
    ], 9));
  }

  // ---- counts by status: a click keeps only those

  function toggled(list, value) {
    return list.includes(value) ? list.filter((other) => other !== value) : [...list, value];
  }

  function chips(counts, key, names) {
    const list = el("ul", { class: "chips", "aria-label": `Filter by ${key}` });
    const draw = (query, newer) => {
      counts = newer || counts;
      const on = S.chosen(query, key);
      list.replaceChildren(...names.filter((name) => counts.get(name)).map((name) => el("li", {}, el("button", {
        type: "button", class: "chip", id: `chip-${name}`, "data-chip": name, "aria-pressed": String(on.includes(name)),
        onclick: () => {
          S.go({ [key]: toggled(S.chosen(S.state().query, key), name).join(","), page: "" });
          document.getElementById(`chip-${name}`)?.focus();
        },
      }, el("b", {}, fmt.count(counts.get(name))), S.badge(name)))));
    };
    return { list, draw };
  }

  function counted(rows, value) {
    const counts = new Map();
    for (const row of rows) counts.set(value(row), (counts.get(value(row)) || 0) + 1);
    return counts;
  }

  // ---- what the table knows of each case besides the case itself

  const once = (make) => {
    let found = null;
    return () => (found ||= make());
  };
  const series = once(() => new Map((doc.history?.series || []).map((item) => [item.case, item])));
  const deltas = once(() => new Map((doc.comparison?.deltas || []).filter((item) => item.metric === "time").map((item) => [item.case, item])));
  const texts = once(() => new Map(doc.cases.map((item) => [item.id, `${item.id} ${item.label} ${item.status} ${item.reason} ${item.device}`.toLowerCase()])));

  function scales(metric) {
    const ends = new Map();
    for (const item of doc.cases) {
      const figure = item.metrics[metric];
      if (!figure || !(figure[0] > 0)) continue;
      const known = ends.get(item.workload) || [Infinity, -Infinity];
      ends.set(item.workload, [Math.min(known[0], figure[1] > 0 ? figure[1] : figure[0]), Math.max(known[1], figure[2] ?? figure[0])]);
    }
    return new Map([...ends].map(([workload, [low, high]]) => [workload, S.logScale(low, high)]));
  }

  function matching(query) {
    const words = (query.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    const asked = FILTERS.map((name) => [name, S.chosen(query, name)]).filter(([, values]) => values.length);
    const fits = (item) => asked.every(([name, values]) => values.includes(String(item[name] ?? "")));
    return doc.cases.filter((item) => fits(item) && words.every((word) => texts().get(item.id).includes(word)));
  }

  // ---- columns; one is left out where it has nothing to tell

  function caseCell(item) {
    const reason = item.status !== "ok" && item.reason ? el("span", { class: "reason", title: item.reason }, item.reason) : null;
    return [S.caseLink(item.id, caseName(item)), reason];
  }

  // The workload in quiet letters, so that what differs stands out.
  function caseName(item) {
    const label = item.label || item.id;
    return label.startsWith(`${item.workload} `) ? [el("span", { class: "workload" }, S.breakable(item.workload)), S.breakable(label.slice(item.workload.length))] : S.breakable(label);
  }

  const bases = once(() => new Set((doc.comparison?.paired && doc.comparison.deltas.map((delta) => delta.base)) || []));

  function deltaCell(delta, id) {
    if (!delta) return bases().has(id) ? el("span", { class: "faint" }, "base") : null;
    return S.badge(delta.verdict, delta.ratio ? delta.effect : delta.verdict);
  }

  const versus = () => `vs ${doc.comparison.paired ? S.arms(doc.comparison).base : doc.comparison.base}`;
  const grade = (noise) => noise && el("span", { class: `grade grade-${noise[0]}`, title: `Noise grade ${noise}: ${GRADES}` }, noise);

  function barColumn(metric) {
    const byWorkload = scales(metric);
    return {
      key: "bar", title: `${metric === "time" ? "Time" : "Value"}, log`, help: "The value and its interval, on a log scale that all cases of a workload share", sort: false, csv: false, wide: true,
      cell: (item) => (item.metrics[metric] ? S.intervalBar(...item.metrics[metric].slice(0, 3), byWorkload.get(item.workload) || S.logScale(0, 0)) : ""),
    };
  }

  function columns(metric) {
    const has = (name) => doc.cases.some((item) => item.metrics[name]);
    const value = (name) => (item) => item.metrics[name]?.[0] ?? null;
    const end = (name, at) => ({ key: `${name}_${at === 1 ? "low" : "high"}`, value: (item) => item.metrics[name]?.[at] ?? null, hidden: true });
    const spread = (name) => doc.cases.some((item) => fmt.known(item.metrics[name]?.[1]));
    const cell = (name) => (spread(name) ? (item) => S.quantity(fmt.metricParts(item, name)) : (item) => item.metrics[name] && fmt.metric(item, name));
    const figure = (name, title, options = {}) => has(name) && { key: name, title, numeric: true, value: value(name), cell: cell(name), ...options };
    const better = doc.metrics[metric]?.better;
    return [
      { key: "status", title: "Status", value: (item) => item.status, cell: (item) => S.badge(item.status), class: "nowrap" },
      { key: "case", title: "Case", head: true, value: (item) => item.label || item.id, cell: caseCell, class: "case-cell" },
      doc.comparison && { key: "speedup", title: `${capital(versus())}, 99 %`, numeric: false, class: "verdict-cell", first: "desc", value: (item) => (deltas().get(item.id)?.ratio ? 1 / deltas().get(item.id).ratio : null), cell: (item) => deltaCell(deltas().get(item.id), item.id) },
      figure(metric, capital(fmt.label(metric)), { help: better === "none" || !better ? null : `${better} is better` }),
      end(metric, 1), end(metric, 2),
      ...["ttft", "itl"].map((name) => metric === "time" && figure(name, name.toUpperCase(), { help: fmt.label(name), wide: true })),
      has(metric) && barColumn(metric),
      metric !== "peak_memory" && figure("peak_memory", "Peak memory"),
      ...["compile_time", "code_size"].map((name) => has("code_size") && metric !== name && figure(name, capital(fmt.label(name)), { wide: true })),
      doc.cases.some((item) => item.noise) && { key: "noise", title: "Noise", help: GRADES, cell: (item) => grade(item.noise) },
      doc.cases.some((item) => item.check) && { key: "check", title: "Check", help: "Answers that were not verified, or are bit-identical to the plain task's", value: (item) => item.check, cell: (item) => checkCell(item.check) },
      doc.history && { key: "history", title: "History", sort: false, csv: false, cell: (item) => historyCell(series().get(item.id)) },
      ...["workload", "backend", "variant", "mode", "device", "threads", "reason", "id"].map((key) => ({ key, hidden: true })),
    ].filter(Boolean);
  }

  const checkCell = (words) => words && el("span", { class: "faint", title: words }, words.split(": ")[0]);
  const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

  function historyCell(found) {
    return found && found.points.length > 1 ? S.sparkline(found.points.map((point) => point[3]), { changes: found.changes.map((change) => change.index) }) : "";
  }

  function fields() {
    const measured = Object.keys(doc.metrics).filter((name) => doc.cases.some((item) => item.metrics[name]));
    return [
      { name: "q", label: "Search", kind: "text", placeholder: "part of a name, several words narrow it" },
      ...FILTERS.map((name) => ({ name, label: capital(name), options: S.distinct(doc.cases, (item) => item[name]).map((value) => [value, fmt.words(value)]) })),
      { name: "metric", label: "Show", any: null, usual: "time", options: measured.map((name) => [name, fmt.label(name)]) },
    ];
  }

  const metricOf = (query) => (doc.cases.some((item) => item.metrics[query.metric]) ? query.metric : "time");

  // What the labels leave out, as all cases share it.
  function common() {
    const told = doc.common || [];
    const [head, between] = told.length > 1 ? ["The same for all cases of a workload:", () => el("br")] : ["The same for all cases: ", () => null];
    return told.length ? el("p", { class: "note common" }, head, told.map((line) => [between(), line === "…" ? line : S.breakable(line)])) : null;
  }

  function legend() {
    const graded = doc.cases.some((item) => item.noise) ? `Noise: ${GRADES}. ` : "";
    const drawn = doc.cases.some((item) => item.metrics.time) ? "Bars: value and interval, each workload on its own log scale." : "";
    const under = doc.runs.length && doc.cases.length ? doc.runs[doc.runs.length - 1].conditions || [] : [];
    const told = under.length ? `${doc.runs.length > 1 ? "The newest run" : "Measured"} with ${under.join(", ")}. ` : "";
    return told || graded || drawn ? el("p", { class: "note" }, told, graded, el("span", { class: "wide-only" }, drawn)) : null;
  }

  function drawCases(section, state) {
    const statuses = chips(counted(doc.cases, (item) => item.status), "status", ORDER);
    S.fill(section, [el("h2", {}, "Cases"), common(), statuses.list]);
    const sync = S.filters(section, fields());
    const holder = el("div");
    section.append(holder);
    S.fill(section, [legend()]);
    let shown = null;
    let grid = null;
    const update = (now) => {
      const metric = metricOf(now.query);
      statuses.draw(now.query);
      sync(now);
      if (shown !== metric) {
        holder.replaceChildren();
        grid = S.table(holder, { name: "cases", caption: "Cases", noun: "case", rows: doc.cases, key: (item) => item.id, columns: columns(metric), empty: "No case matches these filters." });
        shown = metric;
      }
      const rows = matching(now.query);
      grid.update(rows, doc.cases.length);
      S.announce(`${fmt.count(rows.length)} of ${fmt.plural(doc.cases.length, "case")}`);
    };
    update(state);
    return update;
  }

  // Where nothing was compared and several stacks were timed, each against the baseline of the matrix; references are slow by nature.
  function stackDeltas() {
    if (!doc.matrix) return [];
    const { baseline, columns, cells, by_baseline: bases, references } = doc.matrix;
    const at = columns.indexOf(baseline);
    return cells.flatMap((row, line) => row.map((cell, column) => {
      const ratio = bases[baseline].speedups[line][column];
      if (column === at || references.includes(columns[column]) || cell?.status !== "ok" || !(ratio?.[0] > 0)) return null;
      const [verdict, effect] = S.held(row[at].case, cell.case, ratio);
      const end = (place) => (ratio[place] > 0 ? 1 / ratio[place] : null);
      return { case: cell.case, base: row[at].case, metric: "time", ratio: 1 / ratio[0], low: end(2), high: end(1), margin: fmt.MARGIN, verdict, effect, before: row[at].time, after: cell.time };
    })).filter(Boolean);
  }

  // The picture that answers: the change of each case by workload and size, where cases were compared.
  function drawAnswer(main) {
    const places = new Map(doc.cases.map((item, at) => [item.id, at]));
    const found = doc.comparison?.deltas || stackDeltas();
    const known = found.filter((delta) => delta.metric === "time" && delta.ratio > 0 && places.has(delta.case));
    if (!known.length) return;
    const furthest = new Set([...known].sort((a, b) => Math.abs(Math.log(b.ratio)) - Math.abs(Math.log(a.ratio))).slice(0, MOST_ANSWERED));
    const shown = known.filter((delta) => furthest.has(delta)).sort((a, b) => places.get(a.case) - places.get(b.case));
    const box = el("div", { class: "answer" });
    main.append(box);
    const base = doc.comparison ? versus() : `vs ${doc.matrix.baseline}`;
    const apart = doc.comparison ? {} : { words: [["head against base", `each case against ${doc.matrix.baseline}`], ["99 % interval", "interval"]], note: "Measured apart: the intervals take both times at their worst." };
    S.drawForest(box, shown, { title: `Time of each case ${base}`, file: "answer", ...apart });
    const rest = known.length - shown.length;
    S.fill(box, [el("p", { class: "note" }, rest > 0 ? `The ${fmt.count(shown.length)} largest of ${fmt.plural(known.length, "effect")}. ` : "", doc.comparison ? S.link("Compare in full", "compare") : S.link("All stacks", "matrix"))]);
  }

  function draw(main, state) {
    main.append(el("h1", {}, S.breakable(doc.title || "Overview")), banner());
    S.fill(main, [warnings(doc.warnings)]);
    if (doc.cases.length) drawAnswer(main);
    else main.append(el("h2", {}, "Cases"), el("p", { class: "notice" }, "There are no records here. Nothing measured is never a pass."));
    const section = el("section", { "aria-label": "Cases" });
    if (doc.cases.length) main.append(section);
    const newest = doc.runs[doc.runs.length - 1];
    S.fill(main, [(newest || doc.machines.length > 0) && el("section", { class: "below", "aria-label": "Run and machine" }, el("h2", {}, "Run and machine"), el("div", { class: "masonry" }, newest && runCard(newest), doc.machines.map(machineCard)))]);
    return doc.cases.length ? drawCases(section, state) : null;
  }

  S.page("overview", "Overview", 10, { when: () => doc.cases.length > 0 || !doc.runs.some((run) => run.href), draw });
  Object.assign(S, { banner, warnings, facts, factList, chips, counted, seriesOf: (id) => series().get(id), deltaOf: (id) => deltas().get(id), grade, capital, toggled });
})();
