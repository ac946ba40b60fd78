// The ground every page stands on: the document, safe nodes, the address as the only state, and the pages by name.
"use strict";

window.Steelyard = (() => {
  const doc = {};
  const main = document.getElementById("main");
  const pages = new Map();
  const byId = new Map();
  const SVG = "http://www.w3.org/2000/svg";
  const SAFE = new Set(["http:", "https:", "file:", "blob:"]);
  let current = { page: null, rest: null, update: null, token: 0 };
  let pending = [];
  let endings = [];

  // ---- nodes: strings become text and addresses are checked, so that nothing from a result file can become code

  function fill(node, children) {
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) node.append(child instanceof Node ? child : String(child));
    }
    return node;
  }

  function safe(address) {
    try {
      return SAFE.has(new URL(address, location.href).protocol) ? address : "#/";
    } catch (broken) {
      return "#/";
    }
  }

  function attribute(node, name, value) {
    if (value === null || value === undefined || value === false) return;
    if (typeof value === "function") node.addEventListener(name.replace(/^on/, ""), value);
    else if (/^on/i.test(name)) throw new TypeError(`${name} takes a function`);
    else node.setAttribute(name, name === "href" || name === "src" ? safe(String(value)) : value === true ? "" : value);
  }

  function made(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) attribute(node, name, value);
    return fill(node, children);
  }

  const el = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);

  // ---- the address: #/page/rest?key=value

  function decoded(text) {
    try {
      return decodeURIComponent(text);
    } catch (broken) {
      return text;
    }
  }

  function state() {
    const [path, search] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
    const [page, ...rest] = path.split("/");
    return { page: decoded(page) || home(), rest: decoded(rest.join("/")), query: Object.fromEntries(new URLSearchParams(search || "")) };
  }

  function href(page, query = {}, rest = "") {
    const kept = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
    const search = new URLSearchParams(kept).toString().replace(/%2C/g, ",").replace(/%2F/g, "/");
    return `#/${encodeURIComponent(page)}${rest ? `/${encodeURIComponent(rest)}` : ""}${search ? `?${search}` : ""}`;
  }

  // An object changes keys of the query ("" or null removes one); `replace` keeps typing out of the history,
  // `quiet` is for a part that has already redrawn itself.
  function go(target, { replace = false, quiet = false } = {}) {
    const now = state();
    const address = typeof target === "string" ? target : href(now.page, { ...now.query, ...target }, now.rest);
    if (address === location.hash) return;
    keepPlace();
    history[replace ? "replaceState" : "pushState"]({ place: replace ? history.state?.place : nextPlace() }, "", safe(address));
    if (!quiet) render();
  }

  const caseHref = (id) => href("case", {}, id);
  const link = (text, page, query = {}, rest = "") => el("a", { href: href(page, query, rest) }, text);
  const caseLink = (id, text) => (byId.has(id) ? el("a", { href: caseHref(id) }, text || byId.get(id).label || id) : el("span", {}, text || id));

  // ---- where one was on a page, for the back button

  const places = new Map();
  let lastPlace = 0;
  const nextPlace = () => (lastPlace += 1);
  const keepPlace = () => places.set(history.state?.place, window.scrollY);

  function arrive() {
    const known = history.state && places.get(history.state.place);
    if (!history.state) history.replaceState({ place: nextPlace() }, "");
    render();
    if (known !== undefined && known !== null) window.scrollTo(0, known);
  }

  // ---- pages

  // `order` is a place among the others, or gives it once the document is there.
  function page(name, title, order, { when = () => true, draw }) {
    pages.set(name, { name, title, order, when, draw });
  }

  const place = (item) => (typeof item.order === "function" ? item.order() : item.order);
  const offered = () => [...pages.values()].filter((item) => item.when(doc)).sort((a, b) => place(a) - place(b));
  const home = () => (offered()[0] || { name: "overview" }).name;

  function render() {
    const now = state();
    const item = pages.get(now.page);
    const stays = current.page === now.page && current.rest === now.rest;
    delete main.dataset.drawn;
    const token = current.token + 1;
    if (stays && current.update) {
      current.token = token;
      current.update(now);
    } else {
      drawWhole(now, item, token, stays);
    }
    settle(token);
  }

  function drawWhole(now, item, token, stays) {
    const first = current.page === null;
    const focused = stays ? focusedName() : null;
    endings.forEach((end) => end());
    endings = [];
    pending = [];
    main.replaceChildren();
    main.dataset.page = now.page;
    current = { page: now.page, rest: now.rest, update: null, token };
    current.update = attempt(() => (item && item.when(doc) ? item.draw(main, now) : drawUnknown(now.page))) || null;
    if (current.token !== token) return;
    drawNavigation(now.page);
    const heading = main.querySelector("h1") || main;
    document.title = [titleOf(heading, item), doc.title || "Steelyard report"].filter(Boolean).join(" · ");
    if (stays) refocus(focused);
    else if (!first) arriveAt(heading);
  }

  function titleOf(heading, item) {
    const text = heading === main ? "" : heading.textContent;
    return text && text !== doc.title ? text : item?.title;
  }

  function attempt(draw) {
    try {
      const result = draw();
      return typeof result === "function" ? result : null;
    } catch (error) {
      console.error(error);
      main.append(el("p", { class: "notice", role: "alert" }, `This page could not be drawn: ${error.message}. The data is whole; other pages may work.`));
      return null;
    }
  }

  function drawUnknown(name) {
    main.append(el("h1", {}, "No such page"));
    main.append(el("p", {}, `This report has no page “${name}”, or no data for it. It has: `, offered().map((item, at) => [at ? ", " : "", link(item.title, item.name)]), "."));
  }

  function arriveAt(heading) {
    heading.setAttribute("tabindex", "-1");
    heading.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }

  const focusedName = () => document.activeElement?.id || "";
  const refocus = (id) => id && document.getElementById(id)?.focus({ preventScroll: true });

  // Tests, and whoever prints, can wait for data-drawn; the figures of a page arrive after its words.
  async function settle(token) {
    while (pending.length) await Promise.allSettled(pending.splice(0));
    if (current.token === token) main.dataset.drawn = "yes";
  }

  const waitFor = (promise) => (pending.push(promise), promise);
  const whenLeaving = (end) => endings.push(end);

  function drawNavigation(name) {
    const items = offered().map((item) => el("li", {}, el("a", { href: href(item.name), "data-title": item.title, "aria-current": item.name === name ? "page" : null }, item.title)));
    const list = el("ul", {}, items);
    document.getElementById("pages").replaceChildren(list);
    bringInto(list, list.querySelector("[aria-current]"));
  }

  // Scrolls a row sideways. Not scrollIntoView: the next Tab would go on from there, past the skip link.
  function bringInto(row, item) {
    if (!item) return;
    const box = row.getBoundingClientRect();
    const at = item.getBoundingClientRect();
    row.scrollLeft += Math.min(0, at.left - box.left) + Math.max(0, at.right - box.right);
  }

  function announce(text) {
    document.getElementById("announce").textContent = text;
  }

  // A large document comes as gzip in base64, which the browser itself lays out.
  async function load() {
    const { type, textContent } = document.getElementById("steelyard-data");
    if (type === "application/json") return JSON.parse(textContent);
    const bytes = Uint8Array.from(atob(textContent), (sign) => sign.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }

  async function start() {
    try {
      Object.assign(doc, await load());
    } catch (error) {
      main.append(el("p", { class: "notice", role: "alert" }, `The data of this report could not be read: ${error.message}. A browser of 2023 or later is needed; the same figures: steelyard report -o report.csv.`));
      throw error;
    }
    doc.charts = doc.charts || window.SteelyardCharts;
    for (const item of doc.cases) byId.set(item.id, item);
    history.scrollRestoration = "manual";
    window.addEventListener("hashchange", arrive);
    document.addEventListener("click", (event) => event.target.closest?.("a[href^='#/']") && keepPlace(), true);
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      main.focus();
    });
    document.getElementById("title").textContent = doc.title || "";
    if (doc.front) document.querySelector(".brand").append(el("a", { class: "front", href: doc.front }, "All runs"));
    document.getElementById("colophon").append(`Made ${S.fmt.date(doc.made)} by Steelyard ${doc.version}. Times have 95 % intervals, effects 99 %. Self-contained; works offline.`);
    S.startTheme();
    arrive();
  }

  const S = { doc, caseById: (id) => byId.get(id), page, state, go, href, link, caseHref, caseLink, el, svg, fill, waitFor, whenLeaving, announce, start };
  return S;
})();
