// The replay of a trace on a case's page: what it covers, its calls, and a timeline beside the recording.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt } = S;
  const MOST_KINDS = 6;
  const MUCH_LONGER = 3;

  // ---- rows of the chart: the same as in report/charts/replay.py

  function timelineRows(item) {
    const drawn = item.replay.timeline;
    const spent = new Map();
    drawn.name.forEach((name, at) => spent.set(name, (spent.get(name) || 0) + drawn.replayed[1][at]));
    const largest = new Set([...spent].sort((one, other) => other[1] - one[1]).slice(0, MOST_KINDS).map(([name]) => name));
    const rows = ["recorded", "replayed"].flatMap((track) => {
      const [starts, took] = drawn[track] || [[], []];
      return starts.map((start, at) => {
        const name = drawn.name[at];
        return { case: item.id, track, kind: largest.has(name) ? name : "others", start, end: start + took[at], text: `${name}, ${fmt.plain(took[at], "s")}` };
      });
    });
    return [...rows.filter((row) => row.kind !== "others"), ...rows.filter((row) => row.kind === "others")];
  }

  // A replay that is hard to see beside its recording is drawn again alone.
  function aloneRows(rows) {
    const end = (track) => rows.reduce((most, row) => (row.track === track ? Math.max(most, row.end) : most), 0);
    return end("recorded") > MUCH_LONGER * end("replayed") ? rows.filter((row) => row.track === "replayed") : [];
  }

  function callTable(main, rows) {
    S.table(main, {
      name: "replay-calls", noun: "call", caption: "Calls of one iteration, by operator and shapes", rows, key: (row) => `${row.operator} ${row.shapes}`,
      columns: [
        { key: "operator", title: "Operator", head: true, class: "replayed-call", cell: (row) => [el("code", {}, S.breakable(row.operator)), row.shapes && el("div", { class: "shapes" }, row.shapes)] },
        { key: "shapes", title: "Shapes", hidden: true },
        { key: "time", title: "Replayed", numeric: true, cell: (row) => fmt.plain(row.time, "s") },
        { key: "recorded", title: "Recorded", numeric: true, cell: (row) => (fmt.known(row.recorded) ? fmt.plain(row.recorded, "s") : null) },
        { key: "ratio", title: "Replayed / recorded", numeric: true, value: (row) => (row.recorded ? row.time / row.recorded : null), cell: (row) => (row.recorded ? `${(row.time / row.recorded).toFixed(2)}x` : null) },
        { key: "calls", title: "Calls", numeric: true, cell: (row) => fmt.count(row.calls) },
      ],
    });
  }

  S.drawReplay = (main, item) => {
    if (!item.replay) return;
    const { facts, calls, timeline } = item.replay;
    main.append(el("h2", {}, "Replay"));
    const box = el("div", { class: "stack replay" });
    main.append(box);
    S.fill(box, [el("section", { class: "panel", "aria-label": "Coverage" }, el("h3", {}, "Coverage"), S.factList(facts))]);
    if (timeline) {
      const shown = timeline.name.length;
      const rows = timelineRows(item);
      const alone = aloneRows(rows);
      S.chart(box, "replay-timeline", rows, { note: shown < timeline.count ? `The first ${fmt.count(shown)} of ${fmt.count(timeline.count)} calls.` : "" });
      if (alone.length) S.chart(box, "replay-alone", alone, {});
    }
    if (calls.length) callTable(box, calls);
  };
})();
