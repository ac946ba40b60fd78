// Can everybody read and operate the page? Gives what stands in the way.
const found = [], say = (what, node) => found.push(`${what}: ${node.outerHTML.slice(0, 160)}`);
const all = (query) => [...document.querySelectorAll(query)];
const named = (node) => (node.getAttribute('aria-label') || node.textContent || node.getAttribute('title') || '').trim();
for (const node of all('input, select, textarea'))
  if (!(node.labels?.length && named(node.labels[0])) && !node.getAttribute('aria-label')) say('no label', node);
for (const node of all('button, a[href], summary')) if (!named(node)) say('no name', node);
for (const node of all('svg')) {
  const hidden = node.closest('[aria-hidden=true]'), inside = node.parentElement.closest('[role=img]');
  if (!hidden && !inside && !(node.getAttribute('role') === 'img' && node.getAttribute('aria-label'))) say('picture without words', node);
}
for (const node of all('[role=img]')) if (!node.getAttribute('aria-label')?.trim()) say('picture without words', node);
for (const node of all('figure')) {
  if (!node.querySelector('[role=img][aria-label]')) say('chart without a name', node);
  if ((node.querySelector('figcaption')?.textContent || '').trim().length < 20) say('chart without a reading', node);
  for (const kind of ['csv', 'json']) if (!node.querySelector(`a[data-data=${kind}]`)) say(`chart without ${kind}`, node);
  if (!node.querySelector('button[aria-expanded]')) say('chart without a table', node);
}
for (const node of all('main table')) {
  if (!node.caption && !node.getAttribute('aria-label') && !node.closest('[aria-label]')) say('table without a name', node);
  for (const cell of node.querySelectorAll('th')) if (!cell.hasAttribute('scope')) say('head without scope', cell);
}
for (const node of all('th[aria-sort]')) if (!node.querySelector('button')) say('sort without a button', node);
for (const node of all('[aria-hidden=true] a[href], [aria-hidden=true] button')) say('hidden and reachable', node);
for (const node of all('[tabindex]')) if (node.tabIndex > 0) say('own tab order', node);
for (const node of all('a[href]')) if (/^\s*(javascript|data|vbscript):/i.test(node.getAttribute('href'))) say('link that runs', node);
const ids = all('[id]').map((node) => node.id);
for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) found.push(`two of id ${id}`);
if (all('main h1').length !== 1) found.push(`${all('main h1').length} main headings`);
let level = 1;
for (const node of all('main h1, main h2, main h3, main h4, main h5')) {
  const own = Number(node.tagName[1]);
  if (own > level + 1) say(`heading from ${level} to ${own}`, node);
  level = own;
}
if (!document.documentElement.lang) found.push('no language');
if (!document.title.trim()) found.push('no title');
if (all('main').length !== 1 || !all('nav[aria-label]').length || !all('header').length) found.push('no landmarks');
return found;
