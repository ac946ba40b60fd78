// Every run in this report, newest first: what it measured, where, at which commit, and the way to its page.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, fmt, doc } = S;
  const ORDER = ["ok", "wrong", "failed", "oom", "timeout", "crashed", "unsupported", "not_applied", "not_applicable", "skipped"];

  const absent = (run) => (Array.isArray(run.missing) ? run.missing.length : run.missing || 0);
  const total = (run) => Object.values(run.counts).reduce((sum, count) => sum + count, 0);
  const bad = (run) => ["wrong", ...S.BROKEN].reduce((sum, status) => sum + (run.counts[status] || 0), 0);
  const machine = (run) => doc.machines[run.machine]?.name || "unknown machine";

  function counts(run) {
    const known = ORDER.filter((status) => run.counts[status]);
    const parts = known.map((status) => S.badge(status, `${fmt.count(run.counts[status])} ${fmt.words(status)}`));
    if (absent(run)) parts.push(S.badge("missing", `${fmt.count(absent(run))} absent`));
    return el("span", { class: "counts" }, parts.length ? parts : el("span", { class: "faint" }, "nothing measured"));
  }

  function notes(run) {
    const found = run.sealed || run.warnings.length ? run.warnings : ["unfinished: the run was not closed"];
    return found.length ? el("span", { class: "others run-note" }, found.slice(0, 3).join("; "), found.length > 3 ? `; and ${found.length - 3} more` : "") : null;
  }

  const place = (run) => (run.href ? el("a", { href: run.href }, run.id) : el("span", {}, run.id));

  function columns() {
    const several = (value) => new Set(doc.runs.map(value)).size > 1;
    return [
      { key: "created", title: "Made", first: "desc", class: "nowrap", value: (run) => run.created, cell: (run) => fmt.date(run.created) },
      { key: "id", title: "Run", head: true, class: "nowrap", cell: place },
      { key: "bad", title: "Outcome", first: "desc", class: "verdict-cell", value: bad, cell: (run) => [counts(run), notes(run)] },
      { key: "experiment", title: "Experiment" },
      { key: "commit", title: "Commit", class: "nowrap", value: (run) => run.commit, cell: (run) => (run.commit ? el("code", { title: run.commit }, S.commitLink(run.commit, fmt.commit(run.commit, run.dirty))) : "") },
      several(machine) && { key: "machine", title: "Machine", value: machine },
      { key: "cases", title: "Cases", numeric: true, first: "desc", value: total },
      doc.runs.some((run) => run.conditions?.length) && { key: "conditions", title: "Conditions", sort: false, value: (run) => (run.conditions || []).join(", ") },
      doc.runs.some((run) => run.monitor) && { key: "monitor", title: "Meanwhile", sort: false, value: (run) => run.monitor || "" },
      { key: "version", title: "Steelyard" },
      { key: "command", title: "Command", sort: false, cell: (run) => (run.command ? el("span", { class: "run-cell" }, el("code", { class: "run-command", title: run.command }, run.command), S.copy(run.command)) : "") },
      { key: "dirty", hidden: true }, { key: "sealed", hidden: true }, { key: "warnings", hidden: true, value: (run) => run.warnings.join("; ") },
    ].filter(Boolean);
  }

  function matching(query) {
    const words = (query.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => `${run.id} ${run.commit} ${run.experiment} ${machine(run)} ${run.created} ${run.command} ${run.version}`.toLowerCase();
    const outcome = { bad: (run) => bad(run) > 0, unfinished: (run) => !run.sealed || absent(run) > 0 }[query.outcome] || (() => true);
    const kept = (run) => (!query.machine || machine(run) === query.machine) && (!query.experiment || run.experiment === query.experiment) && outcome(run);
    return doc.runs.filter((run) => kept(run) && words.every((word) => text(run).includes(word)));
  }

  function lede() {
    const span = doc.runs.map((run) => run.created).filter(Boolean).sort();
    const cases = doc.runs.reduce((sum, run) => sum + total(run), 0);
    const when = span.length > 1 ? ` from ${fmt.day(span[0])} to ${fmt.day(span[span.length - 1])}` : "";
    const where = doc.machines.length === 1 ? ` on ${doc.machines[0].name || "one machine"}` : ` on ${fmt.plural(doc.machines.length, "machine")}`;
    return `${fmt.plural(doc.runs.length, "run")}${when}${where}, ${fmt.plural(cases, "record")} in all.${elsewhere()}`;
  }

  // Runs that this report uses but does not list: the other side of its comparison, and those of the history.
  function elsewhere() {
    const listed = new Set(doc.runs.map((run) => run.id));
    const base = doc.comparison && !doc.comparison.paired ? String(doc.comparison.base) : "";
    const sides = new Set(base.split(/\W+/));
    const others = new Set((doc.history?.series || []).flatMap((series) => series.points.map(([run]) => run)));
    const older = [...others].filter((run) => !listed.has(run) && !sides.has(run)).length;
    const told = [base && !listed.has(base) && `the base ${base}`, older && `${fmt.plural(older, "other run")} of the history`].filter(Boolean).join(" and ");
    return told ? ` ${S.capital(told)} ${told.includes(" and ") || older > 1 ? "are" : "is"} in the store.` : "";
  }

  function draw(main, state) {
    const front = doc.runs.some((run) => run.href);
    main.append(el("h1", {}, front && doc.title ? doc.title : "Runs"));
    if (front && !doc.cases.length && S.banner && doc.banner.text) S.fill(main, [S.banner(), S.warnings?.(doc.warnings)]);
    main.append(el("p", { class: "lede" }, lede()));
    const sync = S.filters(main, [
      { name: "q", label: "Search", kind: "text", placeholder: "run, commit, date, command" },
      { name: "experiment", label: "Experiment", options: S.distinct(doc.runs, (run) => run.experiment) },
      { name: "machine", label: "Machine", options: S.distinct(doc.runs, machine) },
      { name: "outcome", label: "Outcome", any: "any", options: [["bad", "with wrong or failed cases"], ["unfinished", "unfinished"]] },
    ]);
    const grid = S.table(main, { name: "runs", caption: "Runs", noun: "run", rows: doc.runs, key: (run) => run.id, columns: columns(), sort: { key: "created", dir: "desc" }, empty: "No run matches these filters." });
    const update = (now) => {
      sync(now);
      grid.update(matching(now.query), doc.runs.length);
    };
    update(state);
    return update;
  }

  S.page("runs", "Runs", () => (doc.cases.length ? 70 : 5), { when: () => doc.runs.length > 0, draw });
})();
