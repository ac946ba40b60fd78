// Quantities as people read them, by the same rules as the terminal: SI prefixes, and no more digits than the interval allows.
"use strict";

(() => {
  const S = window.Steelyard;
  const THIN = "\u202f";
  const TIME = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
  const BINARY = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
  const DECIMAL = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];
  const SMALL = [["m", 1e-3], ["µ", 1e-6], ["n", 1e-9]];
  const COUNTED = new Set(["tok/s"]);
  const SHARES = new Set(["discarded", "roof"]);

  const known = (value) => typeof value === "number" && Number.isFinite(value);
  const chosen = (table, size, rest) => table.find(([, factor]) => size >= factor) || rest;

  function scale(value, unit) {
    const size = Math.abs(value);
    if (unit === "s") return chosen(TIME, size, TIME[3]);
    if (unit === "B") return chosen(BINARY, size, BINARY[4]);
    if (unit === "" || unit === "1") return ["", 1];
    if (COUNTED.has(unit)) return [unit, 1];
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

  // An interval wider than the value, or far longer on one side, is shown as its range.
  function lopsided(value, low, high) {
    const [longer, shorter] = [Math.max(high - value, value - low), Math.min(high - value, value - low)];
    return low >= 0 && low <= value && value <= high && value > 0 && (longer >= value || (longer > 0.25 * value && longer > 3 * shorter));
  }

  // Number, half-width and unit, so that a table can align each.
  function parts(value, low, high, unit = "") {
    if (!known(value)) return ["–", "", ""];
    if (!known(low) || !known(high)) return plainParts(value, unit);
    if (unit === "s" && value <= 0 && high > 0) {
      const [number, , name] = plainParts(high, unit, 2);
      return [`< ${number}`, "", name];
    }
    const [name, factor] = scale(value, unit);
    if (unit !== "" && unit !== "1" && lopsided(value, low, high)) {
      const decimals = Math.min(decimalsFor(Math.min(low || high, (high - low) / 5) / factor), 4);
      return [`${grouped(low / factor, decimals)} to ${grouped(high / factor, decimals)}`, "", name];
    }
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

  // Effects by the rules of model/effects.py; a delta brings its effect in words, this is for what the page computes itself.
  const FACTOR_FROM = 1.5;
  const UNBOUNDED = 1e6;
  const bounded = (...ratios) => ratios.every((ratio) => ratio === null || ratio === undefined || (ratio > 1 / UNBOUNDED && ratio < UNBOUNDED));
  const byFactor = (ratio) => Math.max(ratio, 1 / ratio) >= FACTOR_FROM;
  const number = (value, decimals) => value.toFixed(decimals).replace(/^-(?=[0.]*$)/, "");

  // An end of the interval in the unit of the ratio's own size, positive where it has the ratio's direction.
  function sizeOf(end, ratio) {
    if (byFactor(ratio)) return ratio > 1 ? end : 1 / end;
    return ratio >= 1 ? 100 * (end - 1) : 100 * (1 - end);
  }

  // Of which metrics more is slower, by the rules of model/parts.py.
  const isTime = (name) => name.includes("time") || /^(ttft|itl|tpot|tail)(?!_(compute|bandwidth|roof)$)(_|$)/.test(name);

  const MARGIN = 0.02;
  const beyond = (low, high, margin) => low > 1 + margin || high < 1 / (1 + margin);
  const within = (low, high, margin) => low >= 1 / (1 + margin) && high <= 1 + margin;

  function signedEnds(low, high) {
    const digits = Math.min(3, decimalsFor(50 * (high - low)));
    return `[${number(100 * (low - 1), digits)}, ${number(100 * (high - 1), digits)}]`;
  }

  // What an interval of head ÷ base says, by the rules of model/pair.py: the margin decides `same`, the interval decides direction.
  function judged(ratio, low, high, margin = MARGIN) {
    if (!known(low) || !known(high)) return ratio > 1 ? "slower" : ratio < 1 ? "faster" : "same";
    return within(low, high, margin) ? "same" : low > 1 ? "slower" : high < 1 ? "faster" : "unclear";
  }

  // The same in words.
  function effect(ratio, low, high, verdict, margin = MARGIN) {
    if (!known(ratio)) return "–";
    if (!bounded(ratio, low, high)) return `${verdict}, interval unbounded`;
    if (!known(low) || !known(high)) return change(ratio);
    if (verdict === "same") return `within ${Number((100 * margin).toPrecision(3))} % ${signedEnds(low, high)}`;
    return verdict === "unclear" ? `unclear ${signedEnds(low, high)}` : change(ratio, low, high, "time", margin);
  }

  // `4.0 % slower [3.1, 4.9]`, `2.30x faster [2.21, 2.39]`; without an interval, the size alone.
  function change(ratio, low, high, name = "time", margin = 0) {
    if (!known(ratio)) return "–";
    if (!bounded(ratio, low, high)) return "unbounded";
    const [more, less] = isTime(name) ? ["slower", "faster"] : ["more", "less"];
    const word = ratio < 1 ? less : more;
    const unit = byFactor(ratio) ? "x" : " %";
    const size = sizeOf(ratio, ratio);
    if (!known(low) || !known(high)) {
      const alone = number(size, byFactor(ratio) ? Math.max(0, 3 - size.toFixed(0).length) : size < 9.95 ? 1 : 0);
      return /[1-9]/.test(alone) ? `${alone}${unit} ${word}` : "no change";
    }
    if (low < 1 && high > 1) {
      return `unclear ${signedEnds(low, high)}`;
    }
    const [from, to] = ratio < 1 ? [sizeOf(high, ratio), sizeOf(low, ratio)] : [sizeOf(low, ratio), sizeOf(high, ratio)];
    const decimals = known(to - from) ? Math.min(3, decimalsFor((to - from) / 2)) : 0;
    const span = `[${number(from, decimals)}, ${number(to, decimals)}]`;
    return margin && !beyond(low, high, margin) ? `${word}, size unclear ${span}` : `${number(size, decimals)}${unit} ${word} ${span}`;
  }

  // A speedup, base time over head time, as the change of time that it is.
  function speedup(value, low, high) {
    if (!known(value)) return "–";
    if (!bounded(value, low, high)) return "unbounded";
    return known(low) && known(high) ? change(1 / value, 1 / high, 1 / low) : change(1 / value);
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

  S.fmt = { measured, parts, plain, count, percent, speedup, change, judged, effect, MARGIN, date, day, commit, words, plural, metric, metricParts, end, label, scale, known };
})();
