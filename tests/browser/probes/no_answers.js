// Text that is no answer: what a script prints when it forgot to ask.
const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode;
  if (node.parentElement.closest('script, style, template')) continue;
  const said = node.data.trim().slice(0, 120);
  if (/\bNaN\b|\bundefined\b|\[object |\bInfinity\b|\bnull\b/.test(node.data)) found.push(`${node.parentElement.tagName}: ${said}`);
}
return found;
