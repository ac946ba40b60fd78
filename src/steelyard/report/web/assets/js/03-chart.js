// A figure: its title, how to read it, the drawing, its data, and the same data as a table.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el } = S;
  const MOST_DRAWN_AS_SVG = 3000;
  const MOST_ROWS = 300;
  // The palette of the specs is meant for white; the same hues, lighter, on a dark ground.
  const CATEGORIES = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#767676"];
  const ON_DARK = { "#0072B2": "#4AA8E0", "#009E73": "#2EBF96", "#D55E00": "#F07F32", "#CC79A7": "#DE9ABF", "#767676": "#9AA1AB" };

  // ---- data out

  function cellText(value) {
    const text = value === null || value === undefined ? "" : Array.isArray(value) || typeof value === "object" ? JSON.stringify(value) : String(value);
    const runs = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(runs) ? `"${runs.replace(/"/g, '""')}"` : runs;
  }

  // Columns are names, or {key, title, value(row)}.
  function csv(rows, columns) {
    const full = columns.map((column) => (typeof column === "string" ? { key: column } : column));
    const value = (row, column) => (column.value ? column.value(row) : row[column.key]);
    const lines = [full.map((column) => cellText(column.title || column.key)), ...rows.map((row) => full.map((column) => cellText(value(row, column))))];
    return `${lines.map((line) => line.join(",")).join("\r\n")}\r\n`;
  }

  function download(name, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    const anchor = el("a", { href: address, download: name });
    document.body.append(anchor);
    anchor.click();
    anchor.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  const fileName = (name) => `${name.replace(/[^A-Za-z0-9._-]+/g, "-")}`;

  // A real link whose file is made only when it is asked for.
  function dataLink(kind, name, make) {
    const type = kind === "csv" ? "text/csv" : "application/json";
    const anchor = el("a", { href: "#/", "data-data": kind, download: `${fileName(name)}.${kind}` }, kind.toUpperCase());
    const prepare = () => {
      if (anchor.href.startsWith("blob:")) URL.revokeObjectURL(anchor.href);
      anchor.href = URL.createObjectURL(new Blob([make()], { type: `${type};charset=utf-8` }));
    };
    for (const event of ["click", "contextmenu"]) anchor.addEventListener(event, prepare);
    return anchor;
  }

  function json(rows, columns) {
    const pick = (row, column) => (typeof column === "string" ? [column, row[column] ?? null] : [column.key, column.value(row) ?? null]);
    return JSON.stringify(rows.map((row) => Object.fromEntries(columns.map((column) => pick(row, column)))));
  }

  // Rows, or a function that gives them as they are when the link is used.
  function dataLinks(name, rows, columns) {
    const now = () => (typeof rows === "function" ? rows() : rows);
    return ["Data: ", dataLink("csv", name, () => csv(now(), columns)), ", ", dataLink("json", name, () => json(now(), columns))];
  }

  // ---- the same data as a table

  function tableCell(column, value) {
    if (value === null || value === undefined) return el("td", { class: "faint" }, "–");
    if (typeof value === "number") return el("td", { class: "numeric" }, Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6))));
    return el("td", {}, column === "case" ? S.caseLink(value, String(value)) : String(value));
  }

  function plainTable(rows, columns, title) {
    const used = columns.filter((column) => rows.some((row) => row[column] !== null && row[column] !== undefined && row[column] !== ""));
    const head = el("thead", {}, el("tr", {}, used.map((column) => el("th", { scope: "col" }, S.fmt.words(column)))));
    const body = el("tbody", {}, rows.slice(0, MOST_ROWS).map((row) => el("tr", {}, used.map((column) => tableCell(column, row[column])))));
    const rest = rows.length > MOST_ROWS && el("p", { class: "faint" }, `The first ${MOST_ROWS} of ${S.fmt.count(rows.length)} rows; all are in the data.`);
    return [el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}, as a table` }, el("table", { class: "plain" }, head, body)), rest];
  }

  const openTables = () => (S.state().query.table || "").split(",").filter(Boolean);

  function tableToggle(name, fill, box) {
    const open = () => openTables().includes(name);
    const button = el("button", { type: "button", class: "linklike", id: `table-of-${name}` });
    const show = () => {
      button.setAttribute("aria-expanded", String(open()));
      button.textContent = open() ? "Hide table" : "Show as table";
      box.hidden = !open();
      box.replaceChildren();
      if (open()) S.fill(box, [fill()]);
    };
    button.addEventListener("click", () => {
      const others = openTables().filter((other) => other !== name);
      S.go({ table: (open() ? others : [...others, name]).join(",") }, { replace: true, quiet: true });
      show();
    });
    show();
    return button;
  }

  // ---- the drawing

  function inks(real) {
    const style = getComputedStyle(document.documentElement);
    // As variables they follow the theme and the printer by themselves; a canvas needs the colours as they are now.
    return (name) => (real ? style.getPropertyValue(name).trim() : `var(${name})`);
  }

  function themeConfig(real) {
    const ink = inks(real);
    const font = getComputedStyle(document.body).fontFamily;
    const words = { labelColor: ink("--muted"), titleColor: ink("--muted"), labelFont: font, titleFont: font, labelFontSize: 11.5, titleFontSize: 11.5, titleFontWeight: 500 };
    return {
      background: null, font,
      view: { stroke: null },
      axis: { ...words, gridColor: ink("--hair"), domainColor: ink("--line"), tickColor: ink("--line"), tickSize: 4, labelPadding: 5, titlePadding: 8, gridDash: [], labelOverlap: "greedy" },
      legend: { ...words, symbolSize: 60, padding: 0 },
      header: { ...words, labelFontSize: 12.5, labelColor: ink("--ink") },
      title: { color: ink("--ink"), font, anchor: "start", fontSize: 12.5 },
      text: { color: ink("--ink"), font, fontSize: 11.5 },
      rule: { color: ink("--muted") },
      range: { category: CATEGORIES.map((colour) => (S.dark() ? ON_DARK[colour] || colour : colour)) },
    };
  }

  function prepared(spec, rows, height) {
    const text = JSON.stringify(spec);
    const ready = JSON.parse(S.dark() ? text.replace(/#[0-9A-Fa-f]{6}/g, (colour) => ON_DARK[colour.toUpperCase()] || colour) : text);
    ready.datasets = { ...ready.datasets, rows };
    if (height) ready.height = height;
    return ready;
  }

  function setSignals(view, signals) {
    const known = view.getState({ signals: () => true, data: () => false }).signals;
    for (const [name, value] of Object.entries(signals)) if (name in known) view.signal(name, value);
  }

  // `ast`: expressions are interpreted, not compiled, so that the page's policy can forbid eval.
  async function embed(body, chart, rows, options) {
    const real = rows.length > (options.canvasAbove || MOST_DRAWN_AS_SVG);
    const logger = window.vega.logger(window.vega.Error);
    const compiled = window.vegaLite.compile(prepared(chart.spec, rows, options.height), { config: themeConfig(real), logger });
    const result = await window.vegaEmbed(body, compiled.spec, {
      actions: false, logLevel: window.vega.Error, renderer: real ? "canvas" : "svg", mode: "vega", ast: true, defaultStyle: false, tooltip: { theme: "steelyard", disableDefaultStyle: true },
    });
    setSignals(result.view, options.signals || {});
    if (options.click) result.view.addEventListener("click", (event, item) => item?.datum && options.click(item.datum));
    await result.view.runAsync();
    return result;
  }

  // Figures that a filter has replaced are let go when the next one is made, all others with their page.
  const live = new Set();

  // Two figures of one page are drawn one after the other, so that words and tables come first and typing stays smooth.
  let queue = Promise.resolve();
  const later = (work) => (queue = queue.then(() => new Promise((done) => setTimeout(done))).then(work, work));

  // The same chart in the words of this page, given as pairs.
  const reworded = (about, words) => JSON.parse(JSON.stringify(about), (key, part) => (typeof part === "string" ? words.reduce((text, [from, to]) => text.replaceAll(from, () => to), part) : part));

  // ---- points by keyboard: arrows go from one to the next, Enter opens it, and what a pointer would be told is said below

  // What is drawn of each datum: its shape, and the words that a pointer gets. A canvas has no shapes, so its points are told alone.
  function points(place, rows) {
    const drawn = [...place.querySelectorAll(".mark-symbol > path, .mark-rect > path")].filter((node) => node.__data__?.tooltip);
    const words = (told) => (typeof told === "object" ? Object.entries(told).map(([name, value]) => `${name}: ${value}`).join(" · ") : String(told));
    if (drawn.length) return drawn.map((shape) => ({ shape, datum: shape.__data__.datum, said: words(shape.__data__.tooltip) }));
    return rows.map((datum) => ({ shape: null, datum, said: [datum.label || datum.line || datum.row || datum.case, datum.text].filter(Boolean).join(" · ") })).filter((point) => point.said);
  }

  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity };

  function reachable(body, place, rows, title, click) {
    const told = el("p", { class: "chart-point", role: "status" });
    const keys = click ? "arrow keys go from one to the next, Enter opens its case" : "arrow keys go from one to the next";
    const holder = el("div", { class: "chart-points", tabindex: "0", role: "group", "aria-label": `Points of ${title}: ${keys}` }, body);
    let at = -1;
    const mark = (known) => {
      known.forEach(({ shape }, place) => shape?.classList.toggle("point-now", place === at));
      told.textContent = known[at] ? `${known[at].said}  (${at + 1} of ${known.length})` : "";
    };
    holder.addEventListener("keydown", (event) => {
      const known = points(place, rows);
      if (event.key === "Enter" && known[at] && click) click(known[at].datum);
      if (!(event.key in STEPS) || !known.length || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      at = Math.min(known.length - 1, Math.max(0, at + STEPS[event.key]));
      mark(known);
    });
    holder.addEventListener("blur", () => {
      at = -1;
      mark(points(place, rows));
    });
    return [holder, told];
  }

  function chart(container, name, rows, options = {}) {
    for (const one of live) one.sweep();
    const usual = S.doc.charts[name];
    if (!usual) throw new Error(`no chart named ${name}`);
    const about = options.words ? reworded(usual, options.words) : usual;
    const title = options.title || about.title;
    // A chart may show a part; its data is the whole, made when it is asked for.
    const data = options.data || (() => rows);
    // Vega names its own container; the words that count are around it.
    const place = el("div", { "aria-hidden": "true" });
    const body = el("div", { class: "chart-body", role: "img", "aria-label": `${title}. ${options.reading || about.reading}` }, place);
    const box = el("div", { class: "chart-table", hidden: true });
    const figure = el("figure", { class: "chart", "data-chart": name },
      el(options.heading || "h3", { class: "chart-title" }, title),
      reachable(body, place, rows, title, options.click),
      el("figcaption", {}, options.reading || about.reading, options.note ? ` ${options.note}` : ""),
      el("p", { class: "chart-links" }, dataLinks(`${S.doc.title || "steelyard"}-${options.file || name}`, data, about.columns), el("span", { class: "dot" }, " · "), tableToggle(options.file || name, () => plainTable(data(), about.columns, title), box)),
      box);
    container.append(figure);
    return S.waitFor(drawn(figure, place, about, rows, options));
  }

  async function drawn(figure, place, about, rows, options) {
    let result = null;
    const end = () => {
      if (result) result.finalize();
      result = null;
      live.delete(one);
    };
    const one = { sweep: () => figure.isConnected || end() };
    const draw = () => later(async () => {
      if (!figure.isConnected) return;
      const old = result;
      result = await embed(place, about, rows, options);
      if (old) old.finalize();
      if (!figure.isConnected) end();
    });
    live.add(one);
    S.whenLeaving(end);
    S.onTheme(() => draw().catch((error) => console.error(error)));
    try {
      await draw();
      return result && result.view;
    } catch (error) {
      console.error(error);
      place.replaceChildren(el("p", { class: "notice" }, `This figure could not be drawn: ${error.message}. Its data is in the links and the table below.`));
      return null;
    }
  }

  // Rows that the document keeps for a chart, made by the same code as its pictures; a page only chooses among them.
  const kept = new Map();
  function rowsOf(name) {
    if (!kept.has(name)) {
      const table = S.doc.rows?.[name] || {};
      const names = Object.keys(table);
      kept.set(name, (table[names[0]] || []).map((_, at) => Object.fromEntries(names.map((column) => [column, table[column][at]]))));
    }
    return kept.get(name);
  }

  Object.assign(S, { rowsOf, csv, download, chart, dataLinks, plainTable });
})();
