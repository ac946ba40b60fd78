// Small things that many pages put beside a number: badges, intervals, sparklines, a copy button, the choice of theme.
"use strict";

(() => {
  const S = window.Steelyard;
  const { el, svg } = S;
  const GLYPHS = {
    ok: "✓", wrong: "✗", failed: "!", oom: "!", timeout: "!", crashed: "!", unsupported: "–", not_applied: "–", not_applicable: "–", skipped: "·",
    slower: "▼", faster: "▲", same: "≈", unclear: "?", missing: "–", incomparable: "–", new: "+", passed: "✓", none: "–",
  };
  const LEAST_SPAN = 2;
  const BROKEN = ["failed", "oom", "timeout", "crashed"];
  const TONES = { ok: "good", passed: "good", wrong: "bad", slower: "slower", faster: "faster", ...Object.fromEntries(BROKEN.map((name) => [name, "bad"])) };

  // What the flag of a ratio says: weighed together in one run, or two separate measurements.
  const measuredHow = (paired) => (paired === null || paired === undefined ? "" : paired ? "side by side" : "apart");

  // Glyph and word, never colour alone.
  function badge(name, text) {
    const tone = TONES[name] || "quiet";
    return el("span", { class: `badge badge-${tone}`, "data-badge": name }, el("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[name] || "·"), " ", el("span", { class: "word" }, text || S.fmt.words(name)));
  }

  // The clipboard is closed to files opened from disk in some browsers; a selection works everywhere.
  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch (closed) {
      const area = el("textarea", { class: "visually-hidden", readonly: true, "aria-hidden": "true" }, text);
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  // A commit leads to where the project shows it, if the page was told where that is.
  function commitLink(hash, text) {
    const address = S.doc.commit_url;
    return address && /^[0-9a-f]{6,64}$/i.test(hash || "") ? el("a", { href: address.replaceAll("{commit}", hash), rel: "noreferrer" }, text) : text;
  }

  function copy(text, label = "Copy") {
    const button = el("button", { type: "button", class: "small", "data-copy": text }, label);
    button.addEventListener("click", async () => {
      const done = await copyText(text);
      button.focus();
      button.textContent = done ? "Copied" : "Press Ctrl+C";
      S.announce(done ? "Copied" : "Could not copy");
      setTimeout(() => { button.textContent = label; }, 1600);
    });
    return button;
  }

  // `scale` maps a value to 0…1; what falls outside is drawn at the edge. It spans a factor of two at least, so that a small
  // interval looks small even where nothing else is on it.
  function logScale(low, high) {
    if (!(low > 0) || !(high > 0)) return () => 0.5;
    const wider = Math.sqrt(Math.max(1, (LEAST_SPAN * low) / high));
    const [from, to] = [low / wider, high * wider];
    const [start, width] = [Math.log(from), Math.log(to) - Math.log(from)];
    return (value) => (value > 0 ? Math.min(1, Math.max(0, (Math.log(value) - start) / width)) : 0);
  }

  // Long names may break after their joints, and nowhere within a word.
  const breakable = (text) => String(text).split(/(?<=[/_,+])|(?=\[)/).map((part, at) => (at ? [el("wbr"), part] : part));

  const BAR = { width: 110, height: 14, edge: 4 };

  function intervalBar(value, low, high, scale) {
    if (!S.fmt.known(value)) return el("span", { class: "faint" }, "–");
    const x = (at) => BAR.edge + scale(at) * (BAR.width - 2 * BAR.edge);
    const middle = BAR.height / 2;
    const whole = S.fmt.known(low) && S.fmt.known(high);
    return svg("svg", { class: "interval", viewBox: `0 0 ${BAR.width} ${BAR.height}`, width: BAR.width, height: BAR.height, "aria-hidden": "true" },
      svg("line", { class: "interval-axis", x1: 0, x2: BAR.width, y1: middle, y2: middle }),
      whole && svg("line", { class: "interval-span", x1: x(low), x2: Math.max(x(high), x(low) + 1), y1: middle, y2: middle }),
      svg("circle", { class: "interval-dot", cx: x(value), cy: middle, r: 2.6 }));
  }

  const SPARK = { width: 96, height: 20, edge: 3 };

  // Points are numbers in order of time; `changes` are the indices where a new level begins.
  function sparkline(points, { changes = [] } = {}) {
    const sound = points.filter(S.fmt.known);
    if (sound.length < 2) return el("span", { class: "faint" }, "–");
    const [low, high] = sound.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
    const span = Math.max(high - low, high * 0.02);
    const x = (at) => SPARK.edge + (at / (points.length - 1)) * (SPARK.width - 2 * SPARK.edge);
    const y = (value) => SPARK.height - SPARK.edge - ((value - (low + high - span) / 2) / span) * (SPARK.height - 2 * SPARK.edge);
    const line = points.map((value, at) => (S.fmt.known(value) ? `${x(at).toFixed(1)},${y(value).toFixed(1)}` : "")).filter(Boolean).join(" ");
    const ratio = sound[sound.length - 1] / sound[0];
    const said = `${points.length} runs, last ${S.fmt.change(ratio)} than the first${changes.length ? `, ${S.fmt.plural(changes.length, "change")} of level` : ""}`;
    return svg("svg", { class: "spark", viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, width: SPARK.width, height: SPARK.height, role: "img", "aria-label": said },
      svg("title", {}, said),
      changes.map((at) => svg("line", { class: "spark-change", x1: x(at - 0.5), x2: x(at - 0.5), y1: 1, y2: SPARK.height - 1 })),
      svg("polyline", { class: "spark-line", points: line }),
      svg("circle", { class: "spark-dot", cx: x(points.length - 1), cy: y(sound[sound.length - 1]), r: 2 }));
  }

  // Number, half-width and unit in cells of their own, so that a column of them lines up.
  function quantity(parts) {
    if (!parts) return el("span", { class: "faint" }, "–");
    const [number, half, unit] = parts;
    return el("span", { class: "quantity" }, el("span", { class: "number" }, number), el("span", { class: "half" }, half ? ` ± ${half}` : ""), el("span", { class: "unit" }, unit ? ` ${unit}` : ""));
  }

  // ---- theme: the system's choice unless the reader chose the other one

  const system = matchMedia("(prefers-color-scheme: dark)");
  const themed = new Set();
  const dark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";

  function remember(theme) {
    try {
      if (theme) localStorage.setItem("steelyard-theme", theme);
      else localStorage.removeItem("steelyard-theme");
    } catch (closed) { /* a local file may have no storage; the choice then lasts as long as the page */ }
  }

  function choose(theme) {
    const same = theme === (system.matches ? "dark" : "light");
    if (same) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    remember(same ? "" : theme);
    showTheme();
  }

  function showTheme() {
    const button = document.querySelector("[data-theme-toggle]");
    button.hidden = false;
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", dark() ? "Switch to the light theme" : "Switch to the dark theme");
    themed.forEach((redraw) => redraw());
  }

  function startTheme() {
    document.querySelector("[data-theme-toggle]").addEventListener("click", () => choose(dark() ? "light" : "dark"));
    system.addEventListener("change", showTheme);
    showTheme();
  }

  function onTheme(redraw) {
    themed.add(redraw);
    S.whenLeaving(() => themed.delete(redraw));
  }

  Object.assign(S, { badge, measuredHow, commitLink, copy, intervalBar, sparkline, logScale, breakable, quantity, dark, startTheme, onTheme, BROKEN, GLYPHS });
})();
