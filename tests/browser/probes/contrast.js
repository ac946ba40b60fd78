// Text that is too faint for its ground, and how many places were looked at; the argument is the least ratio.
const least = arguments[0], canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
canvas.canvas.width = canvas.canvas.height = 1;
const known = new Map();
const rgba = (text) => {
  if (!known.has(text)) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    known.set(text, [r, g, b, a / 255]);
  }
  return known.get(text);
};
const over = (top, below) => top.slice(0, 3).map((value, at) => value * top[3] + below[at] * (1 - top[3])).concat(1);
const ground = (node) => {
  const layers = [];
  for (let at = node; at; at = at.parentElement) {
    const colour = rgba(getComputedStyle(at).backgroundColor);
    if (colour[3] > 0) layers.push(colour);
    if (colour[3] === 1) break;
  }
  return layers.reduceRight((below, top) => over(top, below), [255, 255, 255, 1]);
};
const light = (colour) => {
  const [r, g, b] = colour.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const found = new Map();
let looked = 0;
for (const node of document.querySelectorAll('body *')) {
  const words = [...node.childNodes].filter((child) => child.nodeType === 3 && child.data.trim());
  if (!words.length || node.closest('script, style, noscript, option, title, :disabled')) continue;
  if (!node.checkVisibility({opacityProperty: true, visibilityProperty: true}) || node.closest('.visually-hidden')) continue;
  if (node.closest('.chart-body svg') && !node.closest('.role-axis-label, .role-axis-title, .role-legend-label, .role-legend-title')) continue;
  const style = getComputedStyle(node);
  let opacity = 1;
  for (let at = node; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
  const below = ground(node), ink = rgba(node instanceof SVGElement ? style.fill : style.color);
  const [a, b] = [light(over([...ink.slice(0, 3), ink[3] * opacity], below)), light(below)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  looked += 1;
  const where = (one) => `${one.tagName.toLowerCase()}.${one.getAttribute('class') || ''}`;
  if (ratio < least) found.set(`${where(node)} in ${where(node.parentElement)}`, `${ratio.toFixed(2)} "${words[0].data.trim().slice(0, 40)}"`);
}
return [looked, [...found].map(([where, what]) => `${where}: ${what}`)];
