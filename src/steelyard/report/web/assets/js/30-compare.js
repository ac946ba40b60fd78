// Two sides, case by case: the means, every change with its interval, and what could not be compared.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt, doc } = S;
  const VERDICTS = ["slower", "faster", "same", "unclear", "missing", "failed", "incomparable"];
  const MOST_DRAWN = 50;
  const MOST_ROWS = 1000;
  const MOST_DOTS = 2000;
  const MOST_SVG_DOTS = 400;
  const LONGEST_ARM = 24;

  // ---- rows of the charts: the same as in report/charts/compare.py

  const unitOf = (metric) => doc.metrics[metric]?.unit ?? "s";
  const sideText = (figure, metric) => (figure ? fmt.measured(figure[0], figure[1], figure[2], unitOf(metric)) : "–");

  function shortName(id) {
    const item = S.caseById(id);
    return item ? item.label || id : id;
  }

  // Two cases that read the same are told apart by their whole names.
  function labels(deltas) {
    const counts = S.counted(deltas, (delta) => shortName(delta.case));
    return deltas.map((delta) => (counts.get(shortName(delta.case)) > 1 ? delta.case : shortName(delta.case)));
  }

  function byEffect(deltas) {
    const size = (delta) => Math.abs(Math.log(delta.ratio));
    return deltas.filter((delta) => delta.ratio > 0).sort((a, b) => size(b) - size(a));
  }

  const common = (delta, label) => ({ case: delta.case, label, ratio: delta.ratio, verdict: delta.verdict, text: delta.effect });

  // The words that all labels end with, which a narrow screen leaves out; the first word of each is left.
  function tail(names) {
    const ends = names.map((name) => name.split(" "));
    let count = 0;
    while (names.length > 1 && ends.every((words) => words.length > count + 1) && new Set(ends.map((words) => words.at(-count - 1))).size === 1) count += 1;
    return count ? ends[0].slice(-count).map((word) => ` ${word}`).join("") : "";
  }

  function forestRows(deltas) {
    const names = labels(deltas), end = tail(names);
    return deltas.map((delta, at) => ({
      ...common(delta, names[at]), tail: end, low: delta.low, high: delta.high, margin_low: 1 / (1 + delta.margin), margin_high: 1 + delta.margin,
      before: sideText(delta.before, delta.metric), after: sideText(delta.after, delta.metric),
    }));
  }

  // A logarithmic axis that holds more than all there is to measure has no ends.
  const drawable = (value) => value > 1e-30 && value < 1e30;

  // Whether the figures of both sides, each timed alone, lie further apart or nearer than their interleaved pairs allow.
  function belied({ paired, low, high, before, after }) {
    const alone = after[0] / before[0];
    return Boolean(paired) && fmt.known(low) && fmt.known(high) && !(low <= alone && alone <= high);
  }

  const bothSides = (delta) => drawable(delta.before?.[0]) && drawable(delta.after?.[0]);

  // Where the two figures alone belie the interleaved pairs, head stands where the pairs put it: base times their effect.
  function scatterRows(deltas) {
    const both = deltas.filter(bothSides).slice(0, MOST_DOTS);
    const names = labels(both);
    return both.map((delta, at) => ({
      ...common(delta, names[at]), before: delta.before[0], after: belied(delta) ? delta.before[0] * delta.ratio : delta.after[0], unit: unitOf(delta.metric),
      before_text: sideText(delta.before, delta.metric), after_text: sideText(delta.after, delta.metric),
    }));
  }

  // ---- speedup against accuracy and size, where recipes were compared: the same as in report/charts/accuracy.py

  const SAME_SIZE = 0.01;
  const [TOP, EDGE, MARGIN, TALL, WIDE, NARROW, LETTER, LINE, GAP] = [14, 34, 42, 380, 640, 235, 6.2, 13, 14];
  const MOST_NAMED = 12;
  const hasAccuracy = (delta) => delta.metric === "time" && delta.ratio > 0 && fmt.known(S.caseById(delta.case)?.metrics.sqnr?.[0]);

  function accuracyRow(delta) {
    const { label, variant, metrics } = S.caseById(delta.case);
    const [sqnr, size] = [metrics.sqnr[0], metrics.model_bytes?.[0] ?? null];
    const over = (end) => (fmt.known(end) && end ? 1 / end : null);
    return {
      case: delta.case, label: label || delta.case, recipe: variant, state: delta.verdict, speedup: 1 / delta.ratio, low: over(delta.high), high: over(delta.low),
      sqnr, size, text: delta.effect, sqnr_text: `${sqnr.toFixed(1)} dB`, size_text: size ? fmt.plain(size, "B") : "",
    };
  }

  function baselineRow(id, size) {
    const item = S.caseById(id);
    return {
      case: id, label: item?.label || id, recipe: item ? item.variant : "baseline", state: "baseline", speedup: 1, low: null, high: null, sqnr: null, size,
      text: "1.00×", sqnr_text: "nothing is lost", size_text: size ? fmt.plain(size, "B") : "",
    };
  }

  // At least as good in speed, accuracy and size, and better in one; an unclear speed is never better.
  function beats(one, other) {
    if (one === other || one.state === "unclear") return false;
    const ahead = [one.speedup - other.speedup, one.sqnr === null ? Infinity : one.sqnr - other.sqnr];
    if (one.size && other.size && Math.abs(one.size / other.size - 1) > SAME_SIZE) ahead.push(other.size - one.size);
    return Math.min(...ahead) >= 0 && Math.max(...ahead) > 0;
  }

  function pixels(values, length) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return values.map((value) => (high > low ? ((value - low) / (high - low)) * length : length / 2));
  }

  // Where the name of each mark stands so that it covers no mark and no other name; empty where there is no room.
  function places(rows, base, width) {
    const [even, ...across] = pixels([0, ...rows.map((row) => Math.log(row.speedup))], width);
    const up = pixels(rows.map((row) => -row.sqnr), TALL - 2 * MARGIN);
    const [reach, level] = [GAP + LETTER * base.length, TOP - MARGIN];
    const meet = (one, other) => one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
    const taken = [...up.map((y, at) => [across[at] - GAP, y - GAP, across[at] + GAP, y + GAP]), [even - reach, level - GAP, even + reach, level + GAP]];
    return rows.map((row, at) => {
      const [x, y, long] = [across[at], up[at], LETTER * row.recipe.length];
      const boxes = {
        above: [x - long / 2, y - GAP - LINE, x + long / 2, y - GAP], below: [x - long / 2, y + GAP, x + long / 2, y + GAP + LINE],
        right: [x + GAP, y - LINE / 2, x + GAP + long, y + LINE / 2], left: [x - GAP - long, y - LINE / 2, x - GAP, y + LINE / 2],
      };
      const fits = (box) => box[0] >= -EDGE && box[2] <= width + EDGE && !taken.some((other) => meet(box, other));
      const side = Object.keys(boxes).find((name) => fits(boxes[name])) || "";
      if (side) taken.push(boxes[side]);
      return side;
    });
  }

  // The cases that are held against one base, and that base.
  function accuracyRows(deltas, base) {
    const rows = deltas.filter((delta) => delta.base === base && hasAccuracy(delta)).map(accuracyRow).sort((one, other) => (one.case < other.case ? -1 : 1));
    const first = baselineRow(base, rows.map((row) => S.caseById(row.case).effective.bytes_before).find(fmt.known) ?? null);
    const state = (row) => (row.state === "unclear" ? "unclear" : [first, ...rows].some((other) => beats(other, row)) ? "beaten" : "front");
    const [wide, narrow] = [WIDE, NARROW].map((width) => places(rows, first.recipe, width));
    const whole = rows.map((row, at) => ({ ...row, state: state(row), place: wide[at], narrow: narrow[at] }));
    return [first, ...whole].map((row) => ({ ...row, base: first.recipe }));
  }

  // Cases of the same point that are not ok: they cannot be drawn, so they are listed.
  function notDrawn(base) {
    const point = (item) => JSON.stringify([item?.workload, item?.params]);
    const broken = doc.cases.filter((item) => item.status !== "ok" && point(item) === point(S.caseById(base)));
    const names = broken.map((item) => `${item.variant} (${fmt.words(item.status)})`);
    const more = names.length > MOST_NAMED ? [`and ${names.length - MOST_NAMED} more`] : [];
    return names.length ? `Not drawn: ${[...names.slice(0, MOST_NAMED), ...more].join(", ")}.` : "";
  }

  // ---- parts of the page

  // What both sides are called: within a run by what tells them apart, where that is one short word.
  function arms({ paired, deltas }) {
    const both = paired ? deltas.map((delta) => [S.caseById(delta.base), S.caseById(delta.case)]).filter(([base, head]) => base && head) : [];
    for (const part of ["variant", "backend"]) {
      const [bases, heads] = [0, 1].map((side) => [...new Set(both.map((pair) => pair[side][part]))]);
      const short = (names) => names.length === 1 && names[0].length <= LONGEST_ARM;
      if (short(bases) && !heads.includes(bases[0])) return { base: bases[0], head: short(heads) ? heads[0] : part, named: true };
    }
    return { base: "base", head: "head", named: false };
  }

  function sides(comparison) {
    if (comparison.paired) return el("p", { class: "lede" }, "Both arms of each pair were measured interleaved in run ", el("b", {}, comparison.head), ", so drift of the machine cancels out.");
    return el("p", { class: "lede" }, "Base ", el("b", {}, comparison.base), " against head ", el("b", {}, comparison.head), ". Effects are 99 % intervals of the time of head against base.");
  }

  function meanTile(metric, [ratio, n, low, high]) {
    return el("div", { class: "tile" }, el("div", { class: "tile-label" }, `${fmt.label(metric)}, geometric mean`), el("div", { class: "tile-value" }, fmt.change(ratio, low, high, metric)), el("div", { class: "tile-aside", title: "The widest possible interval: it assumes that all cases err together" }, `over ${fmt.plural(n, "case")} that both sides have ok`));
  }

  function means(comparison) {
    const found = Object.entries(comparison.means);
    return found.length ? el("div", { class: "tiles means" }, found.map(([metric, mean]) => meanTile(metric, mean))) : null;
  }

  const toCase = (datum) => S.caseById(datum.case) && S.go(S.caseHref(datum.case));

  function forestNote(shown, known, query) {
    if (known <= MOST_DRAWN) return null;
    const all = query.all === "yes";
    const text = all ? `Show the ${MOST_DRAWN} largest` : known > MOST_ROWS ? `Show the ${fmt.count(MOST_ROWS)} largest of ${fmt.count(known)}` : `Show all ${fmt.count(known)}`;
    return el("p", { class: "note" }, `${fmt.count(shown)} of ${fmt.count(known)} cases, those with the largest effect. `, el("button", { type: "button", class: "linklike", id: "forest-all", onclick: () => S.go({ all: all ? "" : "yes" }) }, text));
  }

  // Every case is a dot, or is counted here with the reason.
  function scatterNote(ranked, total) {
    const sound = ranked.filter(bothSides);
    const [without, lacking, over] = [total - ranked.length, ranked.length - sound.length, Math.max(0, sound.length - MOST_DOTS)];
    const moved = sound.slice(0, MOST_DOTS).filter(belied).length;
    const reasons = [without && `${fmt.count(without)} without a ratio`, lacking && `${fmt.count(lacking)} without a time on both sides`, over && `${fmt.count(over)} with the smallest effects`].filter(Boolean);
    const left = reasons.length ? `Not drawn: ${reasons.join(", ")}.` : `All ${fmt.count(total)} are drawn.`;
    return moved ? `${left} ${fmt.plural(moved, "case")} timed alone differ${moved === 1 ? "s" : ""} from the interleaved pairs; head stands where the pairs put it.` : left;
  }

  // The same figures on two axes, for who wants to see all at once; it waits until it is asked for.
  function drawScatter(holder, ranked, total, query) {
    holder.replaceChildren();
    const dots = scatterRows(ranked);
    if (!dots.length) return;
    const names = arms(doc.comparison);
    const box = el("details", { class: "heat below", open: query.scatter === "1" }, el("summary", { id: "scatter" }, "Before against after, as a scatter plot"));
    const show = () => {
      if (!box.open || box.querySelector("figure")) return;
      const narrow = el("div", { class: "narrow" });
      box.append(narrow);
      S.chart(narrow, "compare-scatter", dots, { click: toCase, heading: "h2", canvasAbove: MOST_SVG_DOTS, note: [names.named && `Base is ${names.base}.`, scatterNote(ranked, total)].filter(Boolean).join(" ") });
    };
    box.addEventListener("toggle", () => {
      S.go({ scatter: box.open ? "1" : "" }, { replace: true, quiet: true });
      show();
    });
    holder.append(box);
    show();
  }

  // One picture for each base; where there are several, the reader chooses, and sees that of the most cases first.
  function drawAccuracy(holder, deltas, query) {
    const counts = [...S.counted(deltas.filter(hasAccuracy), (delta) => delta.base)].sort((a, b) => b[1] - a[1]);
    if (!counts.length) return;
    const base = counts.some(([id]) => id === query.against) ? query.against : counts[0][0];
    const choice = el("div");
    S.filters(choice, [{ name: "against", label: "Speedup and accuracy against", any: null, usual: counts[0][0], options: counts.map(([id]) => [id, shortName(id)]) }], false);
    if (counts.length > 1) holder.append(choice);
    S.chart(holder, "compare-accuracy", accuracyRows(deltas, base), { click: toCase, heading: "h2", note: notDrawn(base) });
  }

  const drawForest = (holder, deltas, options) => S.chart(holder, "compare-forest", forestRows(deltas), { click: toCase, heading: "h2", words: doc.comparison ? [["head against base", against(doc.comparison)]] : [], ...options });

  function drawFigures(holder, deltas, query) {
    holder.replaceChildren();
    const ranked = byEffect(deltas);
    if (!ranked.length) {
      holder.append(el("p", { class: "notice" }, "No case here has a ratio to draw."));
      return;
    }
    const drawn = ranked.slice(0, query.all === "yes" ? MOST_ROWS : MOST_DRAWN);
    drawForest(holder, drawn, { data: () => forestRows(ranked) });
    S.fill(holder, [forestNote(drawn.length, ranked.length, query)]);
    drawAccuracy(holder, ranked, query);
  }

  const against = (comparison) => [arms(comparison).head, arms(comparison).base].join(" against ");

  // By how much in units, unless the sides' figures are of other measurements than the change.
  function absolute({ before, after, metric, ...delta }) {
    if (!before || !after || !fmt.known(before[0]) || !fmt.known(after[0]) || belied({ ...delta, before, after })) return "";
    const text = fmt.plain(after[0] - before[0], unitOf(metric));
    return el("span", { class: "faint" }, ` (${after[0] > before[0] ? "+" : ""}${text})`);
  }

  const sideCell = (figure, metric) => figure && (fmt.known(figure[1]) ? S.quantity(fmt.parts(figure[0], figure[1], figure[2], unitOf(metric))) : sideText(figure, metric));
  const figureColumn = (key, title) => ({ key, title, numeric: true, value: (delta) => delta[key]?.[0] ?? null, cell: (delta) => sideCell(delta[key], delta.metric) });
  const hidden = (key, value) => ({ key, hidden: true, value });

  function columns({ deltas, ...comparison }) {
    const names = arms({ deltas, ...comparison });
    const alone = comparison.paired ? " alone" : "";
    const reasons = deltas.some((delta) => delta.reason);
    return [
      { key: "verdict", title: "Verdict", value: (delta) => VERDICTS.indexOf(delta.verdict), cell: (delta) => S.badge(delta.verdict), class: "nowrap" },
      { key: "case", title: "Case", head: true, value: (delta) => shortName(delta.case), cell: (delta) => S.caseLink(delta.case, S.breakable(shortName(delta.case))), class: "case-cell" },
      { key: "ratio", title: "Effect, 99 %", class: "verdict-cell", first: "desc", value: (delta) => delta.ratio, cell: (delta) => delta.ratio && [delta.effect, absolute(delta)] },
      figureColumn("before", S.capital(`${names.base}${alone}`)), figureColumn("after", S.capital(`${names.head}${alone}`)),
      { key: "p", title: "p", numeric: true, help: "Chance of a difference as large where there is none", value: (delta) => delta.p, cell: (delta) => (fmt.known(delta.p) ? (delta.p < 1e-4 ? "<0.0001" : delta.p.toPrecision(2)) : null) },
      { key: "paired", title: "Measured", value: (delta) => (delta.paired ? "interleaved" : "apart"), help: "Interleaved: both arms took turns in one run" },
      reasons && { key: "reason", title: "Why", cell: (delta) => delta.reason && el("span", { class: "reason", title: delta.reason }, delta.reason) },
      hidden("low", (delta) => delta.low), hidden("high", (delta) => delta.high), hidden("margin", (delta) => delta.margin), hidden("id", (delta) => delta.case), hidden("base_id", (delta) => delta.base),
    ].filter(Boolean);
  }

  // ---- what has no ratio

  function listed(main, name, title, text, rows, more = []) {
    if (!rows.length) return;
    const section = el("section", { "aria-label": title });
    section.append(el("h2", {}, `${title} (${fmt.count(rows.length)})`), el("p", { class: "note" }, text));
    S.table(section, {
      name, noun: "case", caption: title, rows, key: (row) => row.case, size: 20, query: { sort: `${name}-sort`, dir: `${name}-dir`, page: `${name}-page` },
      columns: [{ key: "case", title: "Case", head: true, cell: (row) => S.caseLink(row.case, S.breakable(shortName(row.case))), class: "case-cell" }, ...more],
    });
    main.append(section);
  }

  function badColumns() {
    return [
      { key: "status", title: "Status", cell: (row) => S.badge(row.status), class: "nowrap" },
      { key: "side", title: "Side" },
      { key: "reason", title: "Why", class: "words" },
    ];
  }

  function drawLists(main, comparison) {
    const bare = (ids) => ids.map((id) => ({ case: id }));
    const wrong = comparison.bad.filter((row) => row.status === "wrong");
    const failed = comparison.bad.filter((row) => row.status !== "wrong");
    listed(main, "wrong", "Wrong answers", "Verification failed. Their times are kept but enter no ratio: a fast wrong answer is no answer.", wrong, badColumns());
    listed(main, "failed", "Failed", "These gave no time on one side or both.", failed, badColumns());
    const apart = comparison.deltas.filter((delta) => delta.verdict === "incomparable");
    const reasons = new Map(comparison.deltas.filter((delta) => delta.verdict === "missing").map((delta) => [delta.base, delta.reason]));
    const missing = comparison.missing.map((id) => ({ case: id, reason: reasons.get(id) }));
    const why = [{ key: "reason", title: "Why", class: "words" }];
    listed(main, "apart", "Not comparable", "Both sides have these, but a ratio would have no meaning.", apart, why);
    listed(main, "missing", "Missing", "In base, not in head: nothing to compare with.", missing, why);
    listed(main, "new", "New", "In head, not in base: nothing to compare with.", bare(comparison.new));
  }

  // ---- the page

  function fields(comparison) {
    const metrics = S.distinct(comparison.deltas, (delta) => delta.metric);
    const verdicts = VERDICTS.filter((name) => comparison.deltas.some((delta) => delta.verdict === name));
    const workloads = S.distinct(comparison.deltas, (delta) => S.caseById(delta.case)?.workload);
    return [
      { name: "metric", label: "Metric", any: null, usual: metrics.includes("time") ? "time" : metrics[0], options: metrics.map((name) => [name, fmt.label(name)]) },
      { name: "verdict", label: "Verdict", options: verdicts },
      { name: "workload", label: "Workload", options: workloads },
      { name: "q", label: "Search", kind: "text", placeholder: "part of a name" },
    ];
  }

  function chosenDeltas(comparison, query) {
    const metrics = S.distinct(comparison.deltas, (delta) => delta.metric);
    const metric = metrics.includes(query.metric) ? query.metric : metrics.includes("time") ? "time" : metrics[0];
    const [verdicts, workloads] = [S.chosen(query, "verdict"), S.chosen(query, "workload")];
    const words = (query.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    const ofMetric = comparison.deltas.filter((delta) => delta.metric === metric);
    const fits = (delta) =>
      (!verdicts.length || verdicts.includes(delta.verdict)) &&
      (!workloads.length || workloads.includes(S.caseById(delta.case)?.workload)) &&
      words.every((word) => `${delta.case} ${shortName(delta.case)}`.toLowerCase().includes(word));
    return { ofMetric, kept: ofMetric.filter(fits) };
  }

  function draw(main, state) {
    const comparison = doc.comparison;
    main.append(el("h1", {}, comparison.paired ? (arms(comparison).named ? `Compare with ${arms(comparison).base}` : "Compare") : `Compare ${comparison.base} → ${comparison.head}`), S.banner());
    S.fill(main, [sides(comparison), means(comparison)]);
    const notes = comparison.notes.filter((note) => !(comparison.paired && note.startsWith("paired:")));
    if (notes.length) main.append(el("ul", { class: "note notes" }, notes.map((note) => el("li", {}, note))));
    const section = el("section", { "aria-label": "Changes" }, el("h2", {}, "Changes"));
    const verdicts = S.chips(new Map(), "verdict", VERDICTS);
    section.append(verdicts.list);
    const sync = S.filters(section, fields(comparison));
    const figures = el("div", { class: "stack" });
    const holder = el("div");
    const scatter = el("div");
    section.append(figures, el("h2", {}, "All changes"), holder, scatter);
    main.append(section);
    const grid = S.table(holder, { name: "deltas", noun: "case", caption: "Changes", rows: comparison.deltas, key: (delta) => delta.case, columns: columns(comparison) });
    drawLists(main, comparison);
    let drawn = null;
    const update = (now) => {
      const { ofMetric, kept } = chosenDeltas(comparison, now.query);
      verdicts.draw(now.query, S.counted(ofMetric, (delta) => delta.verdict));
      sync(now);
      grid.update([...byEffect(kept), ...kept.filter((delta) => !(delta.ratio > 0))], ofMetric.length);
      const signature = [now.query.metric, now.query.verdict, now.query.workload, now.query.q, now.query.all, now.query.against].join("\n");
      if (signature !== drawn) {
        drawFigures(figures, kept, now.query);
        drawScatter(scatter, byEffect(kept), kept.length, now.query);
      }
      drawn = signature;
      S.announce(`${fmt.count(kept.length)} of ${fmt.plural(ofMetric.length, "case")}`);
    };
    update(state);
    return update;
  }

  S.page("compare", "Compare", 20, { when: () => Boolean(doc.comparison), draw });
  Object.assign(S, { shortName, arms, drawForest });
})();
