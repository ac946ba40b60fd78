// How close every case comes to what its machine can do at most, and what holds it back.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt, doc } = S;
  const MARGIN = 4;
  const COLUMNS = ["kind", "intensity", "achieved", "low", "high", "roof", "source", "line", "bound", "share", "label", "text", "case"];
  const EMPTY = Object.fromEntries(COLUMNS.map((column) => [column, null]));
  const MOST_DRAWN = 1500;

  const all = () => doc.roofline.points.map(S.caseById).filter((item) => item?.roof && item.roof.intensity > 0 && item.roof.achieved > 0);

  const nameOf = (item) => item.label || item.id;

  // ---- rows

  function pointRow(item) {
    const { intensity, achieved, bound, share } = item.roof;
    const [value, low, high] = item.metrics.time || [];
    const ends = value > 0 && low > 0 && high > 0 ? { low: (achieved * value) / high, high: (achieved * value) / low } : {};
    return {
      ...EMPTY, kind: "point", intensity, achieved, ...ends, bound, line: `${item.backend}/${item.variant}`, label: nameOf(item),
      share: fmt.known(share) ? fmt.percent(share) : "", text: fmt.measured(achieved, ends.low, ends.high, "FLOP/s"), case: item.id,
    };
  }

  function slopeName(bandwidth, left, right, source) {
    const intensity = left * (Math.max(right, left) / left) ** (source === "datasheet" ? 0.6 : 0.1);
    return { intensity, achieved: bandwidth * intensity };
  }

  // Where the peaks of compute and memory are from: one word, or `datasheet compute, measured memory`.
  const sourcesOf = (told) => /^(\w+) compute, (\w+) memory$/.exec(told)?.slice(1) || [told, told];

  const roofName = ({ device, dtype, source }) => [device, dtype, source].filter(Boolean).join(" ");

  function oneRoof(roof, left, right, name) {
    const { compute, bandwidth, dtype, source } = roof;
    if (!compute && !bandwidth) return [];
    const height = (at) => Math.min(compute || Infinity, bandwidth ? bandwidth * at : Infinity);
    const ridge = compute && bandwidth ? compute / bandwidth : null;
    const corners = [left, ...(ridge && ridge > left && ridge < right ? [ridge] : []), right];
    const [ofCompute, ofMemory] = sourcesOf(source);
    const common = { ...EMPTY, roof: name, source: [ofCompute, ofMemory].includes("datasheet") ? "datasheet" : source };
    return [
      ...corners.map((at) => ({ ...common, kind: "roof", intensity: at, achieved: height(at), label: name })),
      compute && { ...common, kind: "peak", source: ofCompute, intensity: right, achieved: compute, label: [dtype, fmt.plain(compute, "FLOP/s"), ofCompute].filter(Boolean).join(" ") },
      bandwidth && { ...common, kind: "slope", source: ofMemory, label: `${fmt.plain(bandwidth, "B/s")} ${ofMemory}`, ...slopeName(bandwidth, left, Math.min(ridge || right, right), ofMemory) },
    ].filter(Boolean);
  }

  // Every ridge and every point has its place; a name that two roofs share stands once.
  function roofRows(roofs, intensities) {
    const ridges = roofs.filter((roof) => roof.compute && roof.bandwidth).map((roof) => roof.compute / roof.bandwidth);
    const spread = [...intensities, ...ridges];
    if (!spread.length) spread.push(1);
    const [left, right] = [Math.min(...spread) / MARGIN, Math.max(...spread) * MARGIN];
    const named = new Set();
    const before = (roof, at) => roofs.slice(0, at).filter((other) => roofName(other) === roofName(roof)).length;
    const nameAt = (roof, at) => roofName(roof) + (before(roof, at) ? ` (${before(roof, at) + 1})` : "");
    return roofs.flatMap((roof, at) => oneRoof(roof, left, right, nameAt(roof, at))).filter((row) => row.kind === "roof" || (!named.has(row.label) && named.add(row.label)));
  }

  // ---- page

  function matching(query) {
    const fits = (item) => (!query.workload || item.workload === query.workload) && (!query.dtype || item.roof.dtype === query.dtype) && (!query.device || item.device === query.device)
      && (!query.variant || `${item.backend}/${item.variant}` === query.variant) && (!query.bound || item.roof.bound === query.bound);
    return all().filter(fits);
  }

  function roofsFor(items, query) {
    const types = new Set(items.map((item) => item.roof.dtype));
    const devices = new Set(items.map((item) => item.device));
    const known = new Set(doc.roofline.roofs.map((roof) => roof.device));
    const here = (roof) => !roof.device || !devices.size || devices.has(roof.device) || ![...devices].some((device) => known.has(device));
    return doc.roofline.roofs.filter((roof) => here(roof) && (!roof.dtype || !types.size || types.has(roof.dtype)) && (!query.source || roof.source === query.source));
  }

  function fields() {
    const items = all();
    const of = (value) => S.distinct(items, value);
    return [
      { name: "workload", label: "Workload", options: of((item) => item.workload) },
      { name: "variant", label: "Variant", options: of((item) => `${item.backend}/${item.variant}`) },
      { name: "dtype", label: "Type", options: of((item) => item.roof.dtype) },
      { name: "device", label: "Device", options: of((item) => item.device) },
      { name: "bound", label: "Bound by", options: of((item) => item.roof.bound) },
      { name: "source", label: "Roofs", any: "all", options: S.distinct(doc.roofline.roofs, (roof) => roof.source) },
    ];
  }

  function summary(items) {
    if (!items.length) return "No case matches these filters.";
    const bounds = S.counted(items, (item) => item.roof.bound);
    const words = { compute: "by arithmetic", memory: "by memory", launch: "by launching" };
    const told = [...bounds].sort((a, b) => b[1] - a[1]).map(([bound, count]) => `${count} ${words[bound] || bound}`).join(", ");
    const best = items.reduce((most, item) => ((item.roof.share ?? 0) > (most.roof.share ?? 0) ? item : most));
    return [`${fmt.plural(items.length, "case")}: bound ${told}. `, fmt.known(best.roof.share) ? ["Closest to its roof is ", S.caseLink(best.id, nameOf(best)), ` at ${fmt.percent(best.roof.share)}.`] : ""];
  }

  // The roof's own time for the work that a case declares: its share of the time that was measured.
  const predicted = ({ roof, metrics }) => (fmt.known(roof.share) && metrics.time ? roof.share * metrics.time[0] : null);

  const share = (item) => (fmt.known(item.roof.share) ? fmt.percent(item.roof.share) : null);

  function shareBar(item) {
    const part = Math.min(1, Math.max(0, item.roof.share ?? 0));
    return S.svg("svg", { class: "interval", viewBox: "0 0 60 14", width: 60, height: 14, "aria-hidden": "true" },
      S.svg("line", { class: "interval-axis", x1: 0, x2: 60, y1: 7, y2: 7 }), S.svg("line", { class: "interval-span", x1: 0, x2: 60 * part, y1: 7, y2: 7 }));
  }

  function columns() {
    return [
      { key: "case", title: "Case", head: true, class: "case-cell", value: nameOf, cell: (item) => S.caseLink(item.id, nameOf(item)) },
      { key: "variant", title: "Variant", class: "nowrap", value: (item) => `${item.backend}/${item.variant}` },
      { key: "dtype", title: "Type", value: (item) => item.roof.dtype },
      { key: "bound", title: "Bound by", value: (item) => item.roof.bound },
      { key: "intensity", title: "FLOP per byte", numeric: true, value: (item) => item.roof.intensity, cell: (item) => fmt.plain(item.roof.intensity) },
      { key: "achieved", title: "Achieved", numeric: true, first: "desc", value: (item) => item.roof.achieved, cell: (item) => pointRow(item).text },
      { key: "time", title: "Measured", numeric: true, value: (item) => item.metrics.time?.[0] ?? null, cell: (item) => item.metrics.time && fmt.plain(item.metrics.time[0], "s") },
      { key: "predicted", title: "Predicted", numeric: true, help: "The time that the roof allows at best", value: predicted, cell: (item) => fmt.known(predicted(item)) ? fmt.plain(predicted(item), "s") : null },
      { key: "share", title: "Of its roof", numeric: true, first: "desc", value: (item) => item.roof.share, cell: share },
      { key: "bar", title: "", sort: false, csv: false, cell: shareBar },
      { key: "id", hidden: true },
    ];
  }

  function noteOn(rows, left) {
    const names = rows.filter((row) => row.kind === "peak" || row.kind === "slope").map((row) => row.label);
    const roofs = names.length ? `Roofs: ${names.join(", ")}.` : "No roof of this machine is known.";
    return left > 0 ? `${roofs} The first ${MOST_DRAWN} cases are drawn; ${left} more are in the table.` : roofs;
  }

  function draw(main, state) {
    const lede = el("p", { class: "lede" });
    main.append(el("h1", {}, "Roofline"), lede);
    const sync = S.filters(main, fields());
    const figure = el("div");
    const list = el("section", { "aria-label": "Cases by what is left to win" }, el("h2", {}, "Cases and their roofs"));
    main.append(figure, list);
    const grid = S.table(list, { name: "roofs", caption: "Cases and their roofs", noun: "case", rows: all(), key: (item) => item.id, columns: columns(), sort: { key: "share", dir: "asc" } });

    function update(now) {
      sync(now);
      const items = matching(now.query);
      S.fill(lede, []).replaceChildren();
      S.fill(lede, [summary(items)]);
      grid.update(items, all().length);
      figure.replaceChildren();
      const drawn = items.slice(0, MOST_DRAWN).map(pointRow);
      const rows = [...roofRows(roofsFor(items, now.query), drawn.map((row) => row.intensity)), ...drawn];
      S.chart(figure, "roofline", rows, { heading: "h2", click: (datum) => datum.case && S.go(S.caseHref(datum.case)), note: noteOn(rows, items.length - drawn.length) });
    }

    update(state);
    return update;
  }

  S.page("roofline", "Roofline", 50, { when: () => Boolean(doc.roofline && all().length), draw });
})();
