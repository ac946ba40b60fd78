// What makes the page wider than its window.
const width = document.documentElement.clientWidth, found = [];
if (document.documentElement.scrollWidth <= width) return found;
for (const node of document.querySelectorAll('body *')) {
  const box = node.getBoundingClientRect();
  let kept = false;
  for (let at = node.parentElement; at && at !== document.body; at = at.parentElement) kept ||= getComputedStyle(at).overflowX !== 'visible';
  if (box.right <= width + 1 || kept) continue;
  found.push(`${node.tagName.toLowerCase()}.${node.getAttribute('class') || ''} ends at ${Math.round(box.right)}`);
}
return found.length ? found.slice(0, 12) : [`the page is ${document.documentElement.scrollWidth} wide`];
