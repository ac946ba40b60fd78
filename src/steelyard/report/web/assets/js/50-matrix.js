// Models against stacks: how much faster, how sure, and whether the answer is right, in every cell.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt, doc } = S;
  const SIZE = 100;
  const MOST_PRINTED = 2000;
  const FULL = Math.log(4);
  const ROW_HEIGHT = 32;
  const BROKEN = new Set(S.BROKEN);
  const COLUMNS = ["row", "column", "row_order", "column_order", "speedup", "low", "high", "measured", "text", "status", "time", "case"];

  // The baseline's speedup over itself: 1, without a measurement.
  const ITSELF = [1, null, null, null];

  // ---- what the address asks for

  function view(query) {
    const { columns, baseline, by_baseline: bases } = doc.matrix;
    const hidden = new Set(S.chosen(query, "hide"));
    const base = Object.hasOwn(bases, query.baseline) ? query.baseline : baseline;
    const shown = columns.map((name, at) => ({ name, at })).filter(({ name }) => name === base || !hidden.has(name));
    const words = (query.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => (!query.mode || row.mode === query.mode) && words.every((word) => `${row.name} ${row.workload} ${row.params} ${row.mode}`.toLowerCase().includes(word));
    const rows = doc.matrix.rows.map((row, at) => ({ row, at })).filter(({ row }) => fits(row));
    const show = doc.metrics[query.show] ? query.show : "speedup";
    return { base, shown, rows: ordered(rows, shown, { base, show, query }), show, query };
  }

  const speedup = (base, row, column) => doc.matrix.by_baseline[base]?.speedups[row][column] || null;
  const sound = (row, column) => doc.matrix.cells[row][column]?.status === "ok";

  // By what the cells of a column show: a metric, the speedup, or in the baseline's own column the time.
  function ordered(rows, shown, { base, show, query }) {
    const by = shown.find((column) => column.name === query.sort);
    if (!by) return query.sort === "name" ? S.sorted(rows, { value: ({ row }) => row.name }, query.dir) : rows;
    const metric = show !== "speedup" ? show : by.name === base ? "time" : null;
    const figure = (at) => (metric ? S.caseById(doc.matrix.cells[at][by.at].case)?.metrics[metric]?.[0] : speedup(base, at, by.at)?.[0]);
    return S.sorted(rows, { value: ({ at }) => (sound(at, by.at) && figure(at)) || null }, query.dir);
  }

  // ---- figures over a column

  const geometric = (values) => Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / values.length);

  // The interval is that of rows which all err together, the widest there can be.
  function mean(base, rows, column) {
    const ratios = rows.map(({ at }) => speedup(base, at, column.at)).filter((ratio) => ratio?.[0] > 0);
    const end = (place) => (column.name !== base && ratios.every((ratio) => ratio[place] > 0) ? geometric(ratios.map((ratio) => ratio[place])) : null);
    return ratios.length ? { mean: geometric(ratios.map(([value]) => value)), low: end(1), high: end(2), n: ratios.length, itself: column.name === base } : null;
  }

  // A stack that never worked would leave nothing in common; it is left out, and says so by having no mean.
  function commonRows({ base, shown, rows }) {
    const works = shown.filter((column) => rows.some(({ at }) => sound(at, column.at) && speedup(base, at, column.at)));
    return rows.filter(({ at }) => works.length && works.every((column) => sound(at, column.at) && speedup(base, at, column.at)));
  }

  function passed(rows, column) {
    const statuses = rows.map(({ at }) => doc.matrix.cells[at][column.at]?.status).filter(Boolean);
    const count = (test) => statuses.filter(test).length;
    return { ok: count((one) => one === "ok"), wrong: count((one) => one === "wrong"), failed: count((one) => BROKEN.has(one)), total: statuses.length };
  }

  // ---- cells

  // Where the comparison has the same two cases, the cell says what the comparison says.
  const between = (() => {
    let known = null;
    const key = (base, head) => `${base}\n${head}`;
    const all = () => (known ||= new Map((doc.comparison?.deltas || []).filter((delta) => delta.metric === "time" && delta.ratio).map((delta) => [key(delta.base, delta.case), delta])));
    return (base, head) => all().get(key(base, head));
  })();

  // Verdict and words for one case against another, of which a speedup with its interval is known.
  function held(base, head, [speedup, least, most, paired]) {
    const delta = paired ? between(base, head) : null;
    if (delta) return [delta.verdict, delta.effect];
    const whole = fmt.known(least) && fmt.known(most) && least > 0;
    const [ratio, low, high] = [1 / speedup, whole ? 1 / most : null, whole ? 1 / least : null];
    const turned = paired ? between(head, base) : null;
    const verdict = turned?.verdict === "unclear" ? "unclear" : fmt.judged(ratio, low, high, turned?.margin);
    return [verdict, fmt.effect(ratio, low, high, verdict, turned?.margin)];
  }

  const baseCase = (now, row) => doc.matrix.cells[row][doc.matrix.columns.indexOf(now.base)]?.case;

  function paint(cell, value) {
    cell.classList.add(value >= 1 ? "tint-faster" : "tint-slower");
    cell.style.setProperty("--strength", Math.min(1, Math.abs(Math.log(value)) / FULL).toFixed(3));
  }

  function checked(item) {
    const status = item?.verification?.status;
    if (status === "passed") return el("span", { title: `Verified against ${item.verification.against || "the reference"}` }, "✓ right");
    return el("span", { class: "faint", title: "There was nothing to verify the answer against" }, "not checked");
  }

  function fullText(now, { row, at }, column, cell, ratio) {
    const item = S.caseById(cell.case);
    const said = ratio && cell.status === "ok" ? `${held(baseCase(now, at), cell.case, ratio)[1]} against the baseline, ${ratio[3] ? "weighed side by side" : "from separate measurements"}` : fmt.words(cell.status);
    return [`${row.name} on ${column.name}`, said, cell.time ? fmt.measured(...cell.time.slice(0, 3), "s") : "", item?.reason].filter(Boolean).join("\n");
  }

  function soundCell(td, now, at, column, cell, ratio) {
    const item = S.caseById(cell.case);
    const time = cell.time ? fmt.measured(...cell.time.slice(0, 3), "s") : "no time";
    const aside = el("span", { class: "cell-aside" }, checked(item));
    if (now.show !== "speedup") return td.append(S.caseLink(cell.case, item ? fmt.metric(item, now.show) : "–"), aside);
    if (column.name === now.base) return td.append(S.caseLink(cell.case, time), el("span", { class: "cell-aside" }, "baseline · ", checked(item)));
    if (!ratio) return td.append(S.caseLink(cell.case, time), el("span", { class: "cell-aside" }, "baseline has no time · ", checked(item)));
    const [verdict, words] = held(baseCase(now, at), cell.case, ratio);
    if (verdict === "slower" || verdict === "faster") paint(td, ratio[0]);
    const [number, half] = words.split(" [");
    td.dataset.verdict = verdict;
    const link = S.caseLink(cell.case, "");
    link.replaceChildren();
    S.fill(link, [el("span", { class: "glyph", "aria-label": verdict, role: "img" }, S.GLYPHS[verdict]), " ", el("b", {}, number), half && [" ", el("span", { class: "half" }, `[${half}`)]]);
    aside.prepend(`${time} · `);
    if (now.mixed && !ratio[3]) aside.append(" · unpaired");
    return td.append(link, aside);
  }

  function cellNode(now, { row, at }, column) {
    const cell = doc.matrix.cells[at][column.at];
    if (!cell) return el("td", { class: "cell-none", "data-status": "absent" }, el("span", { class: "faint" }, "not asked"));
    const ratio = speedup(now.base, at, column.at);
    const td = el("td", { "data-status": cell.status, "data-column": column.name, title: fullText(now, { row, at }, column, cell, ratio) });
    if (cell.status === "ok") {
      soundCell(td, now, at, column, cell, ratio);
      return td;
    }
    td.classList.add(cell.status === "wrong" || BROKEN.has(cell.status) ? "cell-bad" : "cell-out");
    const item = S.caseById(cell.case);
    const link = S.caseLink(cell.case, "");
    link.replaceChildren(S.badge(cell.status));
    const reason = item?.reason || item?.verification?.message || "";
    td.append(link, reason && el("span", { class: "cell-aside cell-reason" }, reason));
    return td;
  }

  // ---- table

  function headCell(now, key, title, aside, redraw) {
    const active = now.query.sort === key;
    const down = now.query.dir === "desc";
    const numeric = key !== "name";
    const turn = () => {
      S.go({ sort: key, dir: active ? (down ? "" : "desc") : numeric ? "desc" : "", page: "" }, { quiet: true });
      redraw();
      document.getElementById(`matrix-sort-${key}`)?.focus();
      S.announce(`Sorted by ${title}`);
    };
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" }, active ? (down ? "↓" : "↑") : "");
    return el("th", { scope: "col", "aria-sort": active ? (down ? "descending" : "ascending") : "none" },
      el("button", { type: "button", id: `matrix-sort-${key}`, "data-sort": key, onclick: turn }, title, arrow), aside);
  }

  function rateCell(rows, column) {
    const { ok, wrong, failed, total } = passed(rows, column);
    const bad = [wrong && `${wrong} wrong`, failed && `${failed} failed`].filter(Boolean).join(", ");
    const out = total - ok - wrong - failed;
    return el("td", { "data-rate": column.name }, total ? `${ok} of ${total} ok` : "–", bad && el("span", { class: "cell-aside bad-text" }, bad), out > 0 && el("span", { class: "cell-aside" }, `${out} unsupported or left out`));
  }

  const meanCell = (found, told) => el("td", { "data-n": found ? found.n : 0 }, found ? [el("b", {}, found.itself ? "baseline" : fmt.speedup(found.mean, found.low, found.high)), el("span", { class: "cell-aside" }, told(found.n))] : el("span", { class: "faint" }, "–"));

  function headRows(now) {
    const { base, shown, rows } = now;
    const common = commonRows(now);
    const own = shown.map((column) => mean(base, rows.filter(({ at }) => sound(at, column.at)), column));
    const differs = own.some((one) => one && one.n !== common.length);
    return [
      el("tr", { class: "matrix-sum", "data-row": "rates" }, el("th", { scope: "row" }, "Pass rate"), shown.map((column) => rateCell(rows, column))),
      common.length > 0 && el("tr", { class: "matrix-sum", "data-row": "means" }, el("th", { scope: "row" }, "Geometric mean ", el("span", { class: "cell-aside" }, `over the ${fmt.plural(common.length, "row")} that all stacks have`)),
        shown.map((column) => meanCell(mean(base, common, column), (n) => `n = ${n}`))),
      differs && el("tr", { class: "matrix-sum", "data-row": "own-means" }, el("th", { scope: "row" }, "Geometric mean ", el("span", { class: "cell-aside" }, "each over its own rows: compare with care")),
        own.map((one) => meanCell(one, (n) => `n = ${n}`))),
    ];
  }

  function rowHead({ row }) {
    const several = new Set(doc.matrix.rows.map((other) => other.mode)).size > 1;
    return el("th", { scope: "row" }, el("span", { class: "matrix-name" }, S.breakable(row.workload)), " ", el("span", { class: "cell-aside" }, row.params, several ? [row.params ? " · " : "", row.mode] : ""));
  }

  function tableNode(now, rows, redraw) {
    const head = el("tr", {}, headCell(now, "name", "Workload", null, redraw),
      now.shown.map((column) => headCell(now, column.name, column.name, column.name === now.base ? el("span", { class: "cell-aside" }, "baseline") : null, redraw)));
    const body = rows.map((item) => el("tr", { "data-key": item.row.name }, rowHead(item), now.shown.map((column) => cellNode(now, item, column))));
    const nothing = el("tr", {}, el("td", { class: "nothing", colspan: now.shown.length + 1 }, "No row matches these filters."));
    return el("table", { class: "matrix", "data-table": "matrix" }, el("caption", { class: "visually-hidden" }, `Speedup over ${now.base} by workload and stack`),
      el("thead", {}, head, headRows(now)), el("tbody", {}, body.length ? body : nothing));
  }

  // ---- the same cells for the heat map and the data links

  function heatRows(now, rows) {
    return rows.flatMap(({ row, at }, order) => now.shown.map((column, place) => {
      const cell = doc.matrix.cells[at][column.at];
      if (!cell) return null;
      const known = (cell.status === "ok" && speedup(now.base, at, column.at)) || null;
      const [value, low, high, paired] = known && column.name === now.base ? ITSELF : known || [null, null, null, null];
      const time = cell.time ? fmt.measured(...cell.time.slice(0, 3), "s") : "";
      const text = cell.status !== "ok" ? S.badge(cell.status).textContent : value ? (paired === null ? "baseline" : held(baseCase(now, at), cell.case, [value, low, high, paired])[1]) : time;
      return { row: row.name, column: column.name, row_order: order, column_order: place, speedup: value, low, high, measured: S.measuredHow(paired), text, status: cell.status, time, case: cell.case };
    })).filter(Boolean);
  }

  // For slides and papers; the table says more, so this one waits until it is asked for.
  function heatMap(now, rows) {
    const box = el("details", { class: "heat", open: now.query.heat === "1" }, el("summary", { id: "heat-map" }, "The same as a heat map, for slides and print"));
    const show = () => {
      if (!box.open || box.querySelector("figure")) return;
      const click = (datum) => datum.case && S.go(S.caseHref(datum.case));
      S.chart(box, "matrix-heat", heatRows(now, rows), { click, heading: "h2", note: `Baseline: ${now.base}.`, height: rows.length * ROW_HEIGHT });
      box.lastElementChild.style.setProperty("--cells", now.shown.length);
    };
    box.addEventListener("toggle", () => {
      S.go({ heat: box.open ? "1" : "" }, { replace: true, quiet: true });
      show();
    });
    setTimeout(show);
    return box;
  }

  // ---- page

  function stackChips(now) {
    if (doc.matrix.columns.length < 3) return null;
    const hidden = S.chosen(now.query, "hide");
    const one = (column) => el("li", {}, el("button", {
      type: "button", class: "chip", id: `stack-${column}`, "data-chip": column, "aria-pressed": String(!hidden.includes(column)), disabled: column === now.base,
      onclick: () => {
        S.go({ hide: S.toggled(hidden, column).join(","), page: "" });
        document.getElementById(`stack-${column}`)?.focus();
      },
    }, column));
    return el("ul", { class: "chips stacks", "aria-label": "Stacks that are shown" }, doc.matrix.columns.map(one));
  }

  function pairingNote(now) {
    const ratios = now.rows.flatMap(({ at }) => now.shown.filter((column) => column.name !== now.base && sound(at, column.at)).map((column) => speedup(now.base, at, column.at))).filter(Boolean);
    const paired = ratios.filter((ratio) => ratio[3]).length;
    now.mixed = paired > 0 && paired < ratios.length;
    if (!ratios.length || paired === ratios.length) return ratios.length ? "All were weighed side by side, interleaved in one run." : "";
    return paired ? "Those marked unpaired compare two separate measurements, which drift can move." : "None was weighed side by side: these compare separate measurements, which drift can move.";
  }

  function pager(pages, page, redraw) {
    const turn = (to) => {
      S.go({ page: to > 1 ? String(to) : "" }, { quiet: true });
      redraw();
    };
    const button = (text, label, to) => el("button", { type: "button", class: "small", "aria-label": label, disabled: to < 1 || to > pages, onclick: () => turn(to) }, text);
    return el("div", { class: "pager" }, button("←", "Previous page", page - 1), el("span", { class: "pager-text" }, `Page ${page} of ${pages}`), button("→", "Next page", page + 1));
  }

  function fields() {
    const { columns, baseline, rows, by_baseline: bases } = doc.matrix;
    const measured = Object.keys(doc.metrics).filter((metric) => doc.cases.some((item) => item.metrics[metric]));
    return [
      { name: "baseline", label: "Baseline", any: null, usual: baseline, options: columns.filter((column) => Object.hasOwn(bases, column)) },
      { name: "mode", label: "Mode", any: "all modes", options: S.distinct(rows, (row) => row.mode) },
      { name: "show", label: "Cells show", any: null, usual: "speedup", options: [["speedup", "speedup"], ...measured.map((metric) => [metric, fmt.label(metric)])] },
      { name: "q", label: "Search", kind: "text", placeholder: "part of a name" },
    ];
  }

  function draw(main, state) {
    const lede = el("p", { class: "lede" });
    main.append(el("h1", {}, "Matrix"), lede);
    const sync = S.filters(main, fields());
    const chips = el("div");
    const top = el("div", { class: "table-top" });
    const box = el("div", { class: "scroll matrix-scroll", tabindex: "0", role: "region", "aria-label": "Speedups by workload and stack" });
    const foot = el("div");
    const heat = el("div", { class: "below" });
    main.append(chips, el("div", { class: "table-box" }, top, box, foot), heat);

    function fill(all = false) {
      const now = view(S.state().query);
      const pages = Math.max(1, Math.ceil(now.rows.length / SIZE));
      const page = Math.min(pages, Math.max(1, Number.parseInt(now.query.page, 10) || 1));
      const rows = all ? now.rows.slice(0, MOST_PRINTED) : now.rows.slice((page - 1) * SIZE, page * SIZE);
      lede.replaceChildren("Each cell compares the time of the stack above it with ", el("b", {}, now.base), ", with its interval: 99 % where both were weighed side by side, else 95 %. ", pairingNote(now));
      top.replaceChildren(el("span", { "data-count": "", class: "table-count" }, now.rows.length === doc.matrix.rows.length ? fmt.plural(now.rows.length, "row") : `${now.rows.length} of ${fmt.plural(doc.matrix.rows.length, "row")}`),
        el("span", { class: "table-links" }, S.dataLinks(`${doc.title || "steelyard"}-matrix`, () => heatRows(now, now.rows), COLUMNS)));
      box.replaceChildren(tableNode(now, rows, () => fill()));
      foot.replaceChildren(...(pages > 1 && !all ? [pager(pages, page, () => fill())] : []));
      return { now, rows };
    }

    function update(next) {
      sync(next);
      const { now, rows } = fill();
      S.fill(chips, []).replaceChildren(...[stackChips(now)].filter(Boolean));
      heat.replaceChildren(...(rows.length ? [heatMap(now, rows)] : []));
      S.announce(fmt.plural(now.rows.length, "row"));
    }

    const print = [["beforeprint", () => fill(true)], ["afterprint", () => fill()]];
    for (const [event, act] of print) window.addEventListener(event, act);
    S.whenLeaving(() => print.forEach(([event, act]) => window.removeEventListener(event, act)));
    update(state);
    return update;
  }

  S.held = held;
  S.page("matrix", "Matrix", 30, { when: () => Boolean(doc.matrix && doc.matrix.rows.length), draw });
})();
