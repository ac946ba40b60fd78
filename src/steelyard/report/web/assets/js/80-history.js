// All series over any window of time: what became slower or faster, since when, and between which commits.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt, doc } = S;
  const NOISE = { reach: 3, far: 4.5, wide: 3, least: 0.002, fewest: 3, apart: 3 };
  const SERIES = ["kind", "created", "until", "time", "low", "high", "verdict", "run", "commit", "label", "text", "case"];
  const EMPTY = Object.fromEntries(SERIES.map((column) => [column, null]));
  const PRESETS = [["all", null], ["90 days", 90], ["30 days", 30], ["14 days", 14]];
  const DAY = 86_400_000;
  const all = () => doc.history?.series || [];

  // ---- a point is [run, number, created, time, low, high, commit, dirty, href]

  const median = (values) => {
    const sorted = [...values].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  };

  // A series as seen through a window of days; indices of changes count from the window's first point.
  function within(series, from, to) {
    const day = (point) => String(point[2]).slice(0, 10);
    let start = 0;
    let stop = series.points.length;
    if (from) while (start < stop && day(series.points[start]) < from) start += 1;
    if (to) while (stop > start && day(series.points[stop - 1]) > to) stop -= 1;
    const points = start || stop < series.points.length ? series.points.slice(start, stop) : series.points;
    const changes = series.changes.filter((change) => change.index > start && change.index < stop).map((change) => ({ ...change, index: change.index - start }));
    return { points, changes };
  }

  // A run is restless when it lies much further from its neighbours, or has a much wider interval, than is usual in this series.
  function noisyStretches(points) {
    if (points.length < 2 * NOISE.reach) return [];
    const logs = points.map((point) => Math.log(point[3]));
    const away = logs.map((value, at) => Math.abs(value - median(logs.slice(Math.max(0, at - NOISE.reach), at + NOISE.reach + 1))));
    const wide = points.map((point) => (fmt.known(point[4]) && fmt.known(point[5]) ? (point[5] - point[4]) / 2 / point[3] : 0));
    const [far, broad] = [Math.max(NOISE.far * median(away), NOISE.least), Math.max(NOISE.wide * median(wide), NOISE.least)];
    const found = [];
    points.forEach((point, at) => {
      if (away[at] <= far && wide[at] <= broad) return;
      const last = found[found.length - 1];
      if (last && at - last[last.length - 1] <= NOISE.apart) last.push(at);
      else found.push([at]);
    });
    return found.filter((restless) => restless.length >= NOISE.fewest).map((restless) => [restless[0], restless[restless.length - 1]]);
  }

  const short = (commit) => String(commit || "").slice(0, 9);

  function commitRange(change) {
    const [old, now] = [short(change.last), short(change.first)];
    if (old && now && old !== now) return `${old}..${now}`;
    return old || now ? `at ${now || old}` : "";
  }

  const verdictOf = (change) => (change.ratio > 1 ? "slower" : "faster");
  const changeText = (change) => fmt.change(change.ratio, change.low, change.high);

  function seriesRows(series, from, to) {
    const { points, changes } = within(series, from, to);
    const common = { ...EMPTY, case: series.case };
    const edges = [0, ...changes.map((change) => change.index), points.length];
    const level = (start, stop) => ({ ...common, kind: "level", created: points[start][2], until: points[stop - 1][2], time: median(points.slice(start, stop).map((point) => point[3])) });
    return [
      ...points.map(([run, number, created, time, low, high, commit]) => ({ ...common, kind: "point", created, time, low, high, run: `${run}/${number}`, commit: short(commit), label: fmt.date(created), text: fmt.measured(time, low, high, "s") })),
      ...(changes.length ? edges.slice(1).map((stop, at) => level(edges[at], stop)) : []),
      ...changes.map((change) => ({ ...common, kind: "change", created: change.created, verdict: verdictOf(change), run: change.run, label: [changeText(change), commitRange(change)].filter(Boolean).join(", ") })),
      ...noisyStretches(points).map(([start, stop]) => ({ ...common, kind: "noise", created: points[start][2], until: points[stop][2], label: "noisy" })),
    ];
  }

  // ---- small pieces

  // The parts of a case's id in different weights; an id that is built otherwise stays as it is.
  function caseName(id) {
    const [, workload, params, stack] = /^([^[\]@]+)(\[.*\])?@(.+)$/s.exec(id) || [];
    return el("span", { class: "case-id" }, workload ? [el("b", {}, workload), params ? el("span", { class: "faint" }, ` ${params.slice(1, -1).replaceAll(",", " ")} `) : " ", stack] : id);
  }

  const labelOf = (() => {
    let known = null;
    return (id) => (known ||= new Map(all().map((series) => [series.case, series.label]))).get(id);
  })();

  // Where the page has the case, its label says what differs from the other cases; on the front page of a site, from the other series.
  function shortName(id) {
    const label = S.caseById(id)?.label || labelOf(id), workload = workloadOf(id);
    if (!label) return caseName(id);
    const known = label.startsWith(`${workload} `);
    return el("span", { class: "case-id", title: id }, known ? [el("span", { class: "workload" }, S.breakable(workload)), S.breakable(label.slice(workload.length))] : S.breakable(label));
  }

  const runOf = (() => {
    let known = null;
    return (id) => (known ||= new Map(doc.runs.map((run) => [run.id, run]))).get(id);
  })();
  const machineName = (series) => doc.machines[series.machine]?.name || "unknown machine";

  function runLink(id, text) {
    const address = runOf(id)?.href;
    return address ? el("a", { href: address }, text || id) : el("span", {}, text || id);
  }

  function showSeries(id) {
    S.go({ case: id });
    const heading = document.getElementById("series");
    if (!heading) return;
    window.scrollBy(0, heading.getBoundingClientRect().top);
    heading.focus({ preventScroll: true });
  }

  let current = null;

  function seriesLink(id) {
    const query = { ...S.state().query, case: id };
    const plain = (event) => event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    return el("a", { href: S.href("history", query), "data-series": id, "aria-current": id === current ? "true" : null, onclick: (event) => {
      if (!plain(event)) return;
      event.preventDefault();
      showSeries(id);
    } }, shortName(id));
  }

  function commitsCell(change) {
    const range = commitRange(change);
    if (!range) return el("span", { class: "faint" }, "no commits known");
    const two = range.includes("..");
    return el("span", { class: "commits" }, el("code", { title: two ? `${change.last}..${change.first}` : null }, two ? [S.commitLink(change.last, short(change.last)), "..", S.commitLink(change.first, short(change.first))] : S.commitLink(change.first || change.last, range)), change.dirty ? " + edits" : "", " ", two ? S.copy(`git log ${change.last}..${change.first}`, "Copy git log") : "");
  }

  // ---- what the window holds

  function gathered(query) {
    const words = (query.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (series) => words.every((word) => series.case.toLowerCase().includes(word)) && (!query.machine || machineName(series) === query.machine) && (!query.workload || workloadOf(series.case) === query.workload);
    const wanted = { changed: ({ last }) => last, known: ({ changes }) => changes.some((change) => change.known), news: ({ changes }) => changes.some((change) => !change.known), slower: ({ moved }) => moved > 1, faster: ({ moved }) => moved < 1 }[query.only] || (() => true);
    return all().filter(fits).map((series) => {
      const { points, changes } = within(series, query.from, query.to);
      const moved = changes.reduce((product, change) => product * change.ratio, 1);
      return { series, points, changes, moved, last: changes[changes.length - 1] || null };
    }).filter((item) => item.points.length && wanted(item));
  }

  const allChanges = (items) => items.flatMap(({ series, changes }) => changes.map((change) => ({ series, change })));

  function summary(items, query) {
    const changes = allChanges(items);
    const [slower, faster] = ["slower", "faster"].map((verdict) => changes.filter(({ change }) => verdictOf(change) === verdict).length);
    const runs = new Set(items.flatMap(({ points }) => points.map((point) => point[0]))).size;
    const span = query.from || query.to ? ` between ${query.from || "the beginning"} and ${query.to || "now"}` : "";
    const found = changes.length ? `${slower || "no"} ${slower === 1 ? "change" : "changes"} to slower, ${faster || "none"} to faster` : "no change of level";
    return `${fmt.plural(items.length, "case")} over ${fmt.plural(runs, "run")}${span}: ${found}.`;
  }

  function chosen(items, query) {
    const asked = items.find(({ series }) => series.case === query.case);
    if (asked || !items.length) return asked || null;
    const worst = (item) => Math.max(0, ...item.changes.map((change) => Math.log(change.ratio)));
    return items.reduce((most, item) => (worst(item) > worst(most) ? item : most));
  }

  // A change that the store's known-changes.toml names is no alarm, and says why.
  const changeCell = (change) => (change.known ? [S.badge("known", changeText(change)), el("span", { class: "others" }, `known: ${change.known}`)] : S.badge(verdictOf(change), changeText(change)));
  const workloadOf = (id) => String(id).split(/[[@]/)[0];

  // ---- tables

  function changeColumns() {
    return [
      { key: "size", title: "Change", class: "nowrap", first: "desc", value: ({ change }) => change.ratio, cell: ({ change }) => changeCell(change) },
      { key: "case", title: "Case", head: true, class: "case-cell", value: ({ series }) => series.case, cell: ({ series }) => seriesLink(series.case) },
      { key: "since", title: "Since", class: "nowrap", first: "desc", value: ({ change }) => change.created, cell: ({ change }) => [fmt.day(change.created), " ", runLink(change.run, `run ${change.run}`)] },
      { key: "commits", title: "Commits", sort: false, value: ({ change }) => [change.last, change.first].filter(Boolean).join(".."), cell: ({ change }) => [commitsCell(change), change.others.length ? el("span", { class: "others" }, `also changed: ${change.others.slice(0, 4).join(", ")}${change.others.length > 4 ? " …" : ""}`) : ""] },
      { key: "levels", title: "Before → after", class: "nowrap", sort: false, value: ({ change }) => `${change.before} ${change.after}`, cell: ({ change }) => `${fmt.plain(change.before, "s", 4)} → ${fmt.plain(change.after, "s", 4)}` },
      { key: "low", hidden: true, value: ({ change }) => change.low }, { key: "high", hidden: true, value: ({ change }) => change.high }, { key: "p", hidden: true, value: ({ change }) => change.p },
    ];
  }

  function noiseCell({ points }) {
    const found = noisyStretches(points);
    return found.length ? el("span", { title: found.map(([start, stop]) => `${fmt.day(points[start][2])} to ${fmt.day(points[stop][2])}`).join(", ") }, `≋ ${fmt.plural(found.reduce((sum, [start, stop]) => sum + stop - start + 1, 0), "run")}`) : "";
  }

  // Several steps are told together; where they undo each other, that is what is said.
  function movedCell({ last, moved, changes }) {
    if (!last) return el("span", { class: "faint" }, "no change found");
    if (changes.length === 1) return changeCell(last);
    const sure = changes.every((change) => fmt.known(change.low) && fmt.known(change.high));
    const [low, high] = ["low", "high"].map((end) => (sure ? changes.reduce((product, change) => product * change[end], 1) : null));
    if (sure && low <= 1 && high >= 1) return el("span", {}, `back after ${changes.length} steps`);
    return S.badge(moved > 1 ? "slower" : "faster", `${fmt.change(moved, low, high)}, ${changes.length} steps`);
  }

  function seriesColumns() {
    const newest = ({ points }) => points[points.length - 1];
    return [
      { key: "case", title: "Case", head: true, class: "case-cell", value: ({ series }) => series.case, cell: ({ series }) => seriesLink(series.case) },
      new Set(all().map(machineName)).size > 1 && { key: "machine", title: "Machine", value: ({ series }) => machineName(series) },
      { key: "moved", title: "In this window", class: "nowrap", first: "desc", value: ({ moved }) => moved, cell: movedCell },
      { key: "since", title: "Since", class: "nowrap", first: "desc", value: ({ last }) => last?.created || "", cell: ({ last }) => (last ? fmt.day(last.created) : "") },
      { key: "commits", hidden: true, value: ({ last }) => (last ? commitRange(last) : "") },
      { key: "newest", title: "Newest", numeric: true, value: (item) => newest(item)[3], cell: (item) => S.quantity(fmt.parts(...newest(item).slice(3, 6), "s")) },
      { key: "spark", title: "Over time", sort: false, csv: false, cell: ({ points, changes }) => S.sparkline(points.map((point) => point[3]), { changes: changes.map((change) => change.index) }) },
      { key: "noise", title: "Noisy", class: "nowrap", sort: false, csv: false, help: "Runs that scatter far more than usual here", cell: noiseCell },
      { key: "runs", title: "Runs", numeric: true, first: "desc", value: ({ points }) => points.length },
      all().some((series) => series.broken) && { key: "broken", title: "Broken", numeric: true, first: "desc", help: "Records of this case that are not ok, in all runs", value: ({ series }) => series.broken },
    ].filter(Boolean);
  }

  // ---- all series as tiles on one scale: each case about its own median, so that five percent looks the same everywhere

  const TILE = { width: 200, height: 44, edge: 5, most: 48, least: 0.03, share: 0.98 };
  const away = (points) => {
    const middle = median(points.map((point) => point[3]));
    return points.map((point) => Math.log(point[3] / middle));
  };

  // As far as nearly all points of all tiles reach; the few beyond are drawn at the edge, as triangles.
  function sharedReach(items) {
    const sizes = items.flatMap(({ points }) => away(points).map(Math.abs)).filter(Number.isFinite).sort((a, b) => a - b);
    return Math.max(TILE.least, sizes[Math.floor(TILE.share * (sizes.length - 1))] || 0);
  }

  function tilePicture({ points, changes }, reach) {
    const logs = away(points);
    const x = (at) => TILE.edge + (at / Math.max(1, points.length - 1)) * (TILE.width - 2 * TILE.edge);
    const y = (value) => TILE.height / 2 - (Math.max(-reach, Math.min(reach, value)) / reach) * (TILE.height / 2 - TILE.edge);
    const out = logs.map((value, at) => [value, at]).filter(([value]) => Math.abs(value) > reach * 1.0001);
    const beyond = ([value, at]) => S.svg("path", { class: "tile-out", d: value > 0 ? `M${x(at) - 3.5} 6 h7 l-3.5 -6 z` : `M${x(at) - 3.5} ${TILE.height - 6} h7 l-3.5 6 z` });
    const said = `${points.length} runs${changes.length ? `, ${fmt.plural(changes.length, "change")} of level` : ", no change of level"}${out.length ? `, ${fmt.plural(out.length, "run")} beyond the scale` : ""}`;
    return S.svg("svg", { class: "tile-spark", viewBox: `0 0 ${TILE.width} ${TILE.height}`, role: "img", "aria-label": said }, S.svg("title", {}, said),
      S.svg("line", { class: "tile-even", x1: 0, x2: TILE.width, y1: TILE.height / 2, y2: TILE.height / 2 }),
      changes.map((change) => S.svg("line", { class: change.known ? "tile-known" : "spark-change", x1: x(change.index - 0.5), x2: x(change.index - 0.5), y1: 0, y2: TILE.height })),
      S.svg("polyline", { class: "spark-line", points: logs.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }), out.map(beyond));
  }

  function drawTiles(holder, items) {
    holder.replaceChildren();
    if (items.length < 2) return;
    const order = [...items].sort((a, b) => Math.abs(Math.log(b.moved)) - Math.abs(Math.log(a.moved)));
    const reach = sharedReach(items);
    const tile = (item) => el("li", { class: "series-tile" }, seriesLink(item.series.case), tilePicture(item, reach), el("div", { class: "tile-words" }, movedCell(item)));
    const more = items.length > TILE.most ? ` The ${TILE.most} that moved most of ${fmt.count(items.length)}; all are in the table below.` : "";
    const percent = `${fmt.plain(100 * (Math.exp(reach) - 1), "", 2)} %`;
    holder.append(el("h2", {}, "At a glance"), el("p", { class: "note" }, `One scale for all: ± ${percent} about each case's own median, slower is up. A line across is a change of level (dashed: known), a triangle a run beyond the scale.${more}`), el("ul", { class: "series-tiles" }, order.slice(0, TILE.most).map(tile)));
  }

  // ---- one series, large

  function openRun(datum) {
    const id = String(datum.run || "").split("/")[0];
    const address = datum.kind === "point" && runOf(id)?.href;
    if (address) el("a", { href: `${address}${S.caseHref(datum.case)}` }).click();
  }

  function drawSeries(box, item, query) {
    const { series, points, changes } = item;
    const about = [
      el("span", {}, el("b", {}, fmt.count(points.length)), ` runs, ${fmt.day(points[0][2])} to ${fmt.day(points[points.length - 1][2])}`),
      el("span", {}, "newest ", el("b", {}, fmt.measured(...points[points.length - 1].slice(3, 6), "s"))),
      el("span", {}, machineName(series)),
      series.broken ? el("span", {}, `${fmt.plural(series.broken, "record")} not ok, left out`) : null,
      series.searched < series.points.length ? el("span", {}, `changes searched in the newest ${fmt.count(series.searched)}`) : null,
      S.caseById(series.case) ? S.caseLink(series.case, "Open the case") : null,
      doc.front ? el("a", { href: `${doc.front}${S.href("history", { case: series.case })}` }, "Full history of all runs") : null,
    ];
    box.append(el("h2", { id: "series", tabindex: "-1" }, caseName(series.case)), el("p", { class: "series-facts" }, about));
    S.chart(box, "history-series", seriesRows(series, query.from, query.to), { click: openRun, note: changes.length ? "" : "No change of level was found in this window." });
  }

  // ---- window

  function newestDay() {
    const days = all().map((series) => String(series.points[series.points.length - 1]?.[2] || "").slice(0, 10)).filter((day) => !Number.isNaN(Date.parse(day))).sort();
    return days[days.length - 1] || "";
  }

  function presets(query) {
    const end = newestDay();
    const start = (days) => (days && end ? new Date(Date.parse(end) - (days - 1) * DAY).toISOString().slice(0, 10) : "");
    const on = (days) => (query.from || "") === start(days) && !query.to;
    const choose = (days) => {
      S.go({ from: start(days), to: "", page: "", "change-page": "" });
      document.getElementById(`window-${days || "all"}`)?.focus();
    };
    const one = ([text, days]) => el("button", { type: "button", class: "chip", id: `window-${days || "all"}`, "data-window": days || "all", "aria-pressed": String(on(days)), onclick: () => choose(days) }, text);
    return PRESETS.map(one);
  }

  function fields() {
    return [
      { name: "from", label: "From", kind: "date" }, { name: "to", label: "To", kind: "date" },
      { name: "only", label: "Series", any: "all", options: [["changed", "that changed"], ["news", "changed, not known"], ["known", "known changes"], ["slower", "now slower"], ["faster", "now faster"]] },
      { name: "workload", label: "Workload", options: S.distinct(all(), (series) => workloadOf(series.case)) },
      { name: "machine", label: "Machine", options: S.distinct(all(), machineName) },
      { name: "q", label: "Search", kind: "text", placeholder: "part of a case" },
    ];
  }

  // ---- page

  function drawTables(main) {
    const changes = el("section", { "aria-label": "Changes of level" }, el("h2", {}, "Changes of level"));
    const series = el("section", { "aria-label": "All series" }, el("h2", {}, "All series"));
    const large = el("section", { "aria-label": "One series" });
    const tiles = el("section", { "aria-label": "At a glance" });
    main.append(changes, tiles, large, series);
    const changeGrid = S.table(changes, { name: "changes", prefix: "change", caption: "Changes of level", noun: "change", rows: [], size: 10, key: ({ series: one, change }) => `${one.case} ${change.run}`, columns: changeColumns(), sort: { key: "size", dir: "desc" }, empty: "No change of level in this window." });
    const seriesGrid = S.table(series, { name: "series", caption: "All series", noun: "case", rows: [], key: ({ series: one }) => one.case, columns: seriesColumns(), sort: { key: "moved", dir: "desc" }, empty: "No series matches." });
    return { changeGrid, seriesGrid, large, tiles };
  }

  function draw(main, state) {
    const lede = el("p", { class: "lede" });
    const chips = el("div", { class: "presets", role: "group", "aria-label": "Window" });
    main.append(el("h1", {}, "History"), lede);
    const sync = S.filters(main, fields());
    main.querySelector("form.toolbar").prepend(chips);
    const { changeGrid, seriesGrid, large, tiles } = drawTables(main);
    const trends = el("section", { "aria-label": "Speedups over time" });
    main.append(trends);

    function update(now) {
      sync(now);
      chips.replaceChildren(...presets(now.query));
      const items = gathered(now.query);
      const changes = allChanges(items);
      lede.textContent = summary(items, now.query);
      const item = chosen(items, now.query);
      current = item?.series.case;
      changeGrid.update(changes, changes.length);
      seriesGrid.update(items, all().length);
      drawTiles(tiles, items);
      large.replaceChildren();
      if (item) drawSeries(large, item, now.query);
      trends.replaceChildren();
      if (doc.history.trends) S.drawTrends(trends, doc.history.trends, now.query);
      S.announce(lede.textContent);
    }

    update(state);
    return update;
  }

  S.page("history", "History", 60, { when: () => Boolean(doc.history && (all().length || doc.history.trends)), draw });
  Object.assign(S, { commitsCell, seriesRows, noisyStretches, caseName });
})();
