// Tables that can be sorted, paged and taken away, and the filters above them; what they show is in the address.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el } = S;
  const SIZE = 50;
  const MOST_PRINTED = 2000;
  const collator = new Intl.Collator("en", { numeric: true });

  // ---- order

  function compare(a, b) {
    if (a === b) return 0;
    if (typeof a === "number" && typeof b === "number") return a - b;
    return collator.compare(String(a), String(b));
  }

  const empty = (value) => value === null || value === undefined || value === "" || Number.isNaN(value);

  // What has no value stands last in either direction; equal rows keep their order.
  function sorted(rows, column, dir) {
    if (!column) return rows;
    const value = column.value || ((row) => row[column.key]);
    const sign = dir === "desc" ? -1 : 1;
    const order = (a, b) => (empty(a.value) || empty(b.value) ? Number(empty(a.value)) - Number(empty(b.value)) : sign * compare(a.value, b.value));
    return rows.map((row) => ({ row, value: value(row) })).sort(order).map((item) => item.row);
  }

  // ---- table

  // A page with several tables gives each its own keys in the address.
  function names(options) {
    return { sort: "sort", dir: "dir", page: "page", ...options.query };
  }

  // What the address says, where it names a column and a page that there are.
  function view(options, rows) {
    const query = S.state().query;
    const keys = names(options);
    const asked = options.columns.find((column) => column.key === query[keys.sort] && column.sort !== false);
    const usual = options.columns.find((column) => column.key === options.sort?.key);
    const column = asked || usual;
    const dir = asked ? (query[keys.dir] === "desc" ? "desc" : "asc") : options.sort?.dir || "asc";
    const pages = Math.max(1, Math.ceil(rows.length / (options.size || SIZE)));
    const page = Math.min(pages, Math.max(1, Number.parseInt(query[keys.page], 10) || 1));
    return { column, dir, page, pages };
  }

  function headCell(column, now, sortBy) {
    const active = now.column === column;
    const side = [column.numeric && "numeric", column.wide && "wide-only"].filter(Boolean).join(" ") || null;
    if (column.sort === false) return el("th", { scope: "col", class: side, title: column.help }, column.title);
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" }, active && now.dir === "desc" ? "↓" : "↑");
    const button = el("button", { type: "button", "data-sort": column.key, title: column.help, onclick: () => sortBy(column) }, column.title, arrow);
    return el("th", { scope: "col", class: side, "aria-sort": active ? (now.dir === "desc" ? "descending" : "ascending") : "none" }, button);
  }

  function bodyCell(column, row, at) {
    const content = column.cell ? column.cell(row) : column.value ? column.value(row) : row[column.key];
    const attributes = { class: [column.numeric && "numeric", column.wide && "wide-only", column.class].filter(Boolean).join(" ") || null };
    return at ? el("td", attributes, empty(content) ? el("span", { class: "faint" }, "–") : content) : el("th", { scope: "row", ...attributes }, content);
  }

  function pager(now, turn) {
    const button = (text, label, to) => el("button", { type: "button", class: "small", "aria-label": label, disabled: to < 1 || to > now.pages, onclick: () => turn(to) }, text);
    return [button("←", "Previous page", now.page - 1), el("span", { class: "pager-text" }, `Page ${now.page} of ${S.fmt.count(now.pages)}`), button("→", "Next page", now.page + 1)];
  }

  function table(container, options) {
    const noun = options.noun || "row";
    const columns = options.columns.filter((column) => !column.hidden);
    const first = Math.max(0, columns.findIndex((column) => column.head));
    const count = el("span", { "data-count": "", class: "table-count" });
    const links = el("span", { class: "table-links" });
    const head = el("thead");
    const body = el("tbody");
    const foot = el("div", { class: "pager" });
    const grid = el("table", { "data-table": options.name }, el("caption", { class: "visually-hidden" }, options.caption || `${noun}s`), head, body);
    const box = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${options.caption || `${noun}s`}, table` }, grid);
    container.append(el("div", { class: "table-box" }, el("div", { class: "table-top" }, count, links), box, foot));
    let rows = options.rows;
    let total = rows.length;

    const change = (changes, focus) => {
      S.go(changes, { quiet: true });
      draw();
      focus();
    };
    const sortBy = (column) => {
      const now = view(options, rows);
      const before = now.column === column ? now.dir : null;
      const dir = before ? (before === "asc" ? "desc" : "asc") : column.first || "asc";
      const keys = names(options);
      change({ [keys.sort]: column.key, [keys.dir]: dir, [keys.page]: "" }, () => head.querySelector(`[data-sort="${CSS.escape(column.key)}"]`)?.focus());
      S.announce(`Sorted by ${column.title}, ${dir === "desc" ? "descending" : "ascending"}`);
    };
    const turn = (page) => change({ [names(options).page]: page > 1 ? String(page) : "" }, () => {
      (foot.querySelector("button:not(:disabled)") || box).focus({ preventScroll: true });
      if (box.getBoundingClientRect().top < 0) window.scrollBy(0, grid.getBoundingClientRect().top);
    });

    function draw(all = false) {
      const now = view(options, rows);
      const size = options.size || SIZE;
      const ordered = sorted(rows, now.column, now.dir);
      const shown = all ? ordered.slice(0, MOST_PRINTED) : ordered.slice((now.page - 1) * size, now.page * size);
      head.replaceChildren(el("tr", {}, columns.map((column) => headCell(column, now, sortBy))));
      body.replaceChildren(...shown.map((row) => el("tr", { "data-key": options.key?.(row) }, columns.map((column, at) => bodyCell(column, row, at === first ? 0 : 1)))));
      if (!shown.length) body.append(el("tr", {}, el("td", { class: "nothing", colspan: columns.length }, options.empty || `No ${noun} matches.`)));
      count.textContent = rows.length === total ? S.fmt.plural(total, noun) : `${S.fmt.count(rows.length)} of ${S.fmt.plural(total, noun)}`;
      foot.replaceChildren(...(now.pages > 1 && !all ? pager(now, turn) : []));
      foot.hidden = now.pages < 2 || all;
    }

    const out = options.columns.filter((column) => column.csv !== false).map((column) => ({ key: column.key, value: column.value || ((row) => row[column.key]) }));
    const current = () => sorted(rows, view(options, rows).column, view(options, rows).dir);
    links.append(...S.dataLinks(`${S.doc.title || "steelyard"}-${options.name}`, current, out));

    const print = [["beforeprint", () => draw(true)], ["afterprint", () => draw()]];
    for (const [event, act] of print) window.addEventListener(event, act);
    S.whenLeaving(() => print.forEach(([event, act]) => window.removeEventListener(event, act)));

    draw();
    return {
      update(newRows, newTotal = total) {
        rows = newRows;
        total = newTotal;
        draw();
      },
    };
  }

  // ---- filters: each control has the name of its key in the address

  const chosen = (query, name) => (query[name] || "").split(",").filter(Boolean);

  // Several choices of one key come from chips or a hand-written address; a select then shows them as one entry.
  function fillSelect(select, field, query) {
    const now = query[field.name] || "";
    const known = field.options.map((option) => (Array.isArray(option) ? option : [option, option]));
    const extra = now && !known.some(([value]) => value === now) ? [[now, now.replaceAll(",", ", ")]] : [];
    const any = field.any === null ? [] : [["", field.any || "any"]];
    select.replaceChildren(...[...any, ...known, ...extra].map(([value, text]) => el("option", { value, selected: value === now }, text)));
    select.value = now || (any.length ? "" : field.usual || known[0]?.[0] || "");
  }

  function control(field, query) {
    const id = `filter-${field.name}`;
    const set = (value, replace) => S.go({ [field.name]: value === field.usual ? "" : value, page: "" }, { replace });
    if (field.kind === "text") {
      const input = el("input", { type: "search", id, name: field.name, placeholder: field.placeholder, autocomplete: "off", spellcheck: "false", oninput: () => set(input.value, true) });
      input.value = query[field.name] || "";
      return input;
    }
    if (field.kind === "date") {
      const input = el("input", { type: "date", id, name: field.name, onchange: () => set(input.value, false) });
      input.value = query[field.name] || "";
      return input;
    }
    const select = el("select", { id, name: field.name, onchange: () => set(select.value, false) });
    fillSelect(select, field, query);
    return select;
  }

  // Fields: {name, label, kind: "text"|"select"|"date", options, any, usual}; a select with nothing to choose is left out.
  function filters(container, fields, clear = true) {
    const query = S.state().query;
    const shown = fields.filter((field) => field.kind === "text" || field.kind === "date" || field.options.length > 1 || query[field.name]);
    const parts = shown.map((field) => ({ field, input: control(field, query) }));
    // A choice without "any" says what is shown, not which rows.
    const narrowing = fields.filter((field) => field.any !== null);
    const reset = el("button", { type: "button", class: "small", onclick: () => S.go(Object.fromEntries([...narrowing.map((field) => [field.name, ""]), ["page", ""]])) }, "Clear filters");
    const form = el("form", { class: "toolbar", role: "search", onsubmit: (event) => event.preventDefault() },
      parts.map(({ field, input }) => el("div", { class: `field field-${field.kind || "select"}` }, el("label", { for: input.id }, field.label), input)), clear && reset);
    container.append(form);
    const sync = (now) => {
      for (const { field, input } of parts) {
        if (input.tagName === "SELECT") fillSelect(input, field, now.query);
        else if (input.value !== (now.query[field.name] || "")) input.value = now.query[field.name] || "";
      }
      reset.hidden = !narrowing.some((field) => now.query[field.name]);
    };
    sync(S.state());
    return sync;
  }

  const distinct = (rows, value) => [...new Set(rows.map(value))].filter((text) => !empty(text)).sort(compare);

  Object.assign(S, { table, filters, chosen, distinct, sorted });
})();
