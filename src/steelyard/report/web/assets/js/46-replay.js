// The replay of a trace on a case's page: what it covers, its calls, and a timeline beside the recording.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt } = S;
  const MOST_KINDS = 8;

  // ---- rows of the chart: the same as in report/charts/replay.py

  function timelineRows(item) {
    const drawn = item.replay.timeline;
    const spent = new Map();
    drawn.name.forEach((name, at) => spent.set(name, (spent.get(name) || 0) + drawn.replayed[1][at]));
    const largest = new Set([...spent].sort((one, other) => other[1] - one[1]).slice(0, MOST_KINDS).map(([name]) => name));
    return ["recorded", "replayed"].flatMap((track) => {
      const [starts, took] = drawn[track] || [[], []];
      return starts.map((start, at) => {
        const name = drawn.name[at];
        return { case: item.id, track, kind: largest.has(name) ? name : "others", start, end: start + took[at], text: `${name}, ${fmt.plain(took[at], "s")}` };
      });
    });
  }

  function callTable(main, rows) {
    S.table(main, {
      name: "replay-calls", noun: "call", caption: "Calls of one iteration, by operator and shapes", rows, key: (row) => `${row.operator} ${row.shapes}`,
      columns: [
        { key: "operator", title: "Operator", head: true, cell: (row) => el("code", {}, row.operator) },
        { key: "shapes", title: "Shapes", value: (row) => row.shapes },
        { key: "calls", title: "Calls", numeric: true, cell: (row) => fmt.count(row.calls) },
        { key: "time", title: "Replayed", numeric: true, cell: (row) => fmt.plain(row.time, "s") },
        { key: "recorded", title: "Recorded", numeric: true, cell: (row) => (fmt.known(row.recorded) ? fmt.plain(row.recorded, "s") : null) },
        { key: "ratio", title: "Replayed / recorded", numeric: true, value: (row) => (row.recorded ? row.time / row.recorded : null), cell: (row) => (row.recorded ? `${(row.time / row.recorded).toFixed(2)}x` : null) },
      ],
    });
  }

  S.drawReplay = (main, item) => {
    if (!item.replay) return;
    const { facts, calls, timeline } = item.replay;
    main.append(el("h2", {}, "Replay"));
    S.fill(main, [el("section", { class: "panel", "aria-label": "Coverage" }, el("h3", {}, "Coverage"), S.factList(facts))]);
    if (timeline) {
      const shown = timeline.name.length;
      S.chart(main, "replay-timeline", timelineRows(item), { note: shown < timeline.count ? `The first ${fmt.count(shown)} of ${fmt.count(timeline.count)} calls.` : "" });
    }
    if (calls.length) callTable(main, calls);
  };
})();
