// Quantities as people read them, by the same rules as the terminal: SI prefixes, and no more digits than the interval allows.
"use strict";

(() => {
  const S = window.Steelyard;
  const THIN = "\u202f";
  const TIME = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
  const BINARY = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
  const DECIMAL = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];
  const SMALL = [["m", 1e-3], ["µ", 1e-6], ["n", 1e-9]];
  const SHARES = new Set(["discarded", "roof"]);

  const known = (value) => typeof value === "number" && Number.isFinite(value);
  const chosen = (table, size, rest) => table.find(([, factor]) => size >= factor) || rest;

  function scale(value, unit) {
    const size = Math.abs(value);
    if (unit === "s") return chosen(TIME, size, TIME[3]);
    if (unit === "B") return chosen(BINARY, size, BINARY[4]);
    if (unit === "" || unit === "1") return ["", 1];
    const tiny = (unit === "J" || unit === "W") && size > 0 && size < 1;
    const [prefix, factor] = tiny ? chosen(SMALL, size, SMALL[2]) : chosen(DECIMAL, size, DECIMAL[5]);
    return [prefix + unit, factor];
  }

  function decimalsFor(error) {
    if (!(error > 0) || !known(error)) return 2;
    const exponent = Math.floor(Math.log10(error));
    return Math.max(0, -exponent + (error / 10 ** exponent < 2.95 ? 1 : 0));
  }

  function grouped(value, decimals) {
    const [whole, rest] = Math.abs(value).toFixed(Math.min(decimals, 20)).split(".");
    const number = whole.replace(/\B(?=(\d{3})+$)/g, THIN) + (rest ? `.${rest}` : "");
    return value < 0 && /[1-9]/.test(number) ? `−${number}` : number;
  }

  function plainParts(value, unit, significant = 3) {
    const [name, factor] = scale(value, unit);
    const shown = value / factor;
    return [grouped(shown, Math.max(0, significant - String(Math.trunc(Math.abs(shown))).length)), "", name];
  }

  // Number, half-width and unit, so that a table can align each.
  function parts(value, low, high, unit = "") {
    if (!known(value)) return ["–", "", ""];
    if (!known(low) || !known(high)) return plainParts(value, unit);
    const [name, factor] = scale(value, unit);
    const half = Math.max(high - value, value - low, 0) / factor;
    const decimals = half ? Math.min(decimalsFor(half), 4) : 2;
    return [grouped(value / factor, decimals), grouped(half, decimals), name];
  }

  const joined = ([number, half, name]) => `${number}${half ? ` ± ${half}` : ""}${name ? ` ${name}` : ""}`;
  const measured = (value, low, high, unit) => joined(parts(value, low, high, unit));
  const plain = (value, unit = "", significant = 3) => (known(value) ? joined(plainParts(value, unit, significant)) : "–");
  const count = (value) => (known(value) ? grouped(value, 0) : "–");

  function percent(share) {
    if (!known(share)) return "–";
    const points = Math.abs(share) * 100;
    const sign = share < 0 ? "−" : "";
    return points === 0 ? "0 %" : points >= 9.95 ? `${sign}${grouped(points, 0)} %` : points >= 0.095 ? `${sign}${points.toFixed(1)} %` : "<0.1 %";
  }

  // `1.16× ± 0.01`
  function ratio(value, low, high) {
    if (!known(value)) return "–";
    const [number, half] = known(low) && known(high) ? parts(value, low, high) : [grouped(value, value >= 100 ? 0 : value >= 10 ? 1 : 2), ""];
    return `${number}×${half ? ` ± ${half}` : ""}`;
  }

  // A ratio of times as the speedup it means: base over head.
  const speedup = (value, low, high) => (known(value) && value > 0 ? ratio(1 / value, known(high) ? 1 / high : null, known(low) ? 1 / low : null) : "–");

  // `+3.1 % ± 0.4`: how far a ratio lies from one.
  function change(value, low, high) {
    if (!known(value)) return "–";
    const ends = known(low) && known(high) ? [100 * (low - 1), 100 * (high - 1)] : [null, null];
    const [number, half] = ends[0] === null ? [grouped(100 * (value - 1), 1), ""] : parts(100 * (value - 1), ends[0], ends[1]);
    const sign = number.startsWith("−") || !/[1-9]/.test(number) ? "" : "+";
    return `${sign}${number} %${half ? ` ± ${half}` : ""}`;
  }

  // `2026-11-14 02:13 UTC`; the text itself where it is no time.
  function date(text) {
    const time = new Date(text);
    return Number.isNaN(time.getTime()) ? String(text || "unknown") : `${time.toISOString().slice(0, 16).replace("T", " ")} UTC`;
  }

  const day = (text) => date(text).slice(0, 10);
  const commit = (text, dirty = false) => (text ? `${String(text).slice(0, 9)}${dirty ? " + edits" : ""}` : "no commit");
  const words = (name) => String(name).replace(/_/g, " ");
  const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

  function metricParts(item, name) {
    const figure = item.metrics[name];
    if (!figure) return null;
    const about = S.doc.metrics[name] || { unit: "" };
    return SHARES.has(name) && about.unit !== "s" ? [percent(figure[0]), "", ""] : parts(figure[0], figure[1], figure[2], about.unit);
  }

  // One end of an interval, with the unit of its metric.
  const end = (name, value) => (!known(value) ? "–" : SHARES.has(name) ? percent(value) : plain(value, S.doc.metrics[name]?.unit || "", 4));
  const metric = (item, name) => (item.metrics[name] ? joined(metricParts(item, name)) : "–");
  const label = (name) => S.doc.metrics[name]?.label || (name === "time" ? "time per call" : words(name));

  S.fmt = { measured, parts, plain, count, percent, ratio, speedup, change, date, day, commit, words, plural, metric, metricParts, end, label, scale, known };
})();
