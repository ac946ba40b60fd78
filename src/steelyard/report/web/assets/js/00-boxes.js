// A large document comes packed, what its cases have in common written once; this lays it out again. See packing.py.
"use strict";

window.SteelyardUnpack = (doc) => {
  if (!doc.packed) return doc;
  let cases = [];

  function values(column, count, ids) {
    if ("v" in column) return Array(count).fill(column.v);
    if ("t" in column) return column.i.map((place) => column.t[place]);
    if ("k" in column) return column.k.map((place) => cases[place].id);
    if ("w" in column) return ids().map((id) => column.w[0] + id + column.w[1]);
    if (!("c" in column)) return column.a;
    const tables = rows(column);
    if (!column.o) return tables;
    const empty = new Set(column.o);
    let next = 0;
    return Array.from({ length: count }, (_, place) => (empty.has(place) ? null : tables[next++]));
  }

  function rows(packed) {
    const made = Array.from({ length: packed.n }, () => ({}));
    for (const [key, column] of Object.entries(packed.c)) {
      const holders = column.p ? column.p.map((place) => made[place]) : made;
      const found = values(column, holders.length, () => holders.map((row) => row.id));
      holders.forEach((row, index) => {
        row[key] = found[index];
      });
    }
    return made;
  }

  const cell = (item) => ({ case: item.id, status: item.status, time: item.metrics.time || null });
  const spot = ([x, place]) => ({ x, case: cases[place].id, ok: cases[place].status === "ok" });

  cases = doc.cases = rows(doc.cases);
  if (doc.comparison) doc.comparison.deltas = rows(doc.comparison.deltas);
  if (doc.matrix) doc.matrix.cells = doc.matrix.cells.map((row) => row.map((place) => (place === null ? null : cell(cases[place]))));
  for (const sweep of doc.sweep || []) for (const line of sweep.lines) line.points = line.points.map(spot);
  if (doc.roofline) doc.roofline.points = doc.roofline.points.map((place) => cases[place].id);
  return doc;
};
