// The data of the page, what is chosen in it, and how its parts are named in words.
const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);
const samples = data.samples, blocks = data.blocks, count = samples.event.length;
const LEAK = 8, LIBRARY = 9;
// From the bottom of the stack up: what lives longest first.
const ORDER = [9, 7, 1, 3, 8, 5, 4, 2, 6, 0];
const present = ORDER.filter((c) => samples.bytes[c].some((b) => b > 0));
// Context and libraries may take many times what tensors take, and would hide them.
const hidden = new Set(Math.max(...samples.bytes[LIBRARY]) > data.peak ? [LIBRARY] : []);
let used = [];
const hasReserved = data.reservedPeak !== null;
const timed = samples.time[count - 1] > samples.time[0];
// The events of an unfolded step have the same time.
let byTime = timed && !data.unfolded, moment = data.peakSample, native = false;

const size = (bytes) => {
  const units = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']];
  for (const [unit, name] of units) if (Math.abs(bytes) >= unit) return (bytes / unit).toFixed(2) + ' ' + name;
  return bytes + ' B';
};
const number = (n) => n.toLocaleString('en');
const seconds = (ns) => {
  const s = ns / 1e9;
  return s >= 100 ? s.toFixed(0) + ' s' : s >= 1 ? s.toFixed(2) + ' s' : s >= 1e-3 ? (s * 1e3).toFixed(2) + ' ms'
    : (s * 1e6).toFixed(1) + ' µs';
};
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const element = (tag, text, cls) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (cls) made.className = cls;
  return made;
};
const swatch = (category) => {
  const made = element('span', '', 'swatch');
  made.style.background = category === LEAK ? 'var(--stripes)' : `var(--c${category})`;
  made.setAttribute('aria-hidden', 'true');
  return made;
};
// The color of a category on a canvas; a leak has stripes, which any color vision tells from a plain area.
const fill = (pen, c) => {
  if (c !== LEAK) return style('--c' + c);
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const brush = tile.getContext('2d');
  brush.fillStyle = style('--c8');
  brush.fillRect(0, 0, 8, 8);
  brush.strokeStyle = style('--stripe');
  brush.lineWidth = 2;
  for (const from of [-8, 0, 8]) {
    brush.moveTo(from - 1, 9);
    brush.lineTo(from + 9, -1);
  }
  brush.stroke();
  return pen.createPattern(tile, 'repeat');
};
const title = (c) => c === LEAK ? 'leak: kept step after step' : data.categories[c];
// The step and phase after that many events.
const stepAt = (event) => {
  let low = 0, high = data.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (data.steps[middle][0] < event) low = middle + 1; else high = middle;
  }
  return low > 0 ? data.steps[low - 1] : null;
};
const stepText = (event) => {
  const found = stepAt(event);
  return !found ? '' : found[1] === 0 ? ', before the first step' : `, step ${found[1]}, ${data.phases[found[2]]}`;
};
const when = (s) => `event ${number(samples.event[s])} of ${number(data.events)}` + stepText(samples.event[s]) +
  (timed ? `, ${seconds(samples.time[s] - samples.time[0])} after the first` : '');
// The frames of a stack, the innermost first.
const framesOf = (node) => {
  const frames = [];
  for (let n = node; n > 0; n = data.nodes.parent[n]) frames.push(data.nodes.frame[n]);
  return frames;
};
// The rule that decided the category.
const whyOf = (b) => blocks.category[b] === LEAK ? 'kept step after step' : data.rules[blocks.rule[b]] || (blocks.category[b] ? 'as recorded' : '');
const MAX_FRAMES = 24;
const stackText = (node) => {
  const frames = framesOf(node).filter((f) => native || !data.frames.native[f]).map((f) => data.frames.text[f]);
  const more = frames.length - MAX_FRAMES;
  return frames.slice(0, MAX_FRAMES).map((text) => '  ' + text).concat(more > 0 ? [`  ${more} more frames`] : []);
};
const describe = (b) => [
  data.names[blocks.tensor[b]] || data.names[blocks.module[b]] || data.names[blocks.op[b]] || '(not named)',
  ...(blocks.op[b] ? ['op: ' + data.names[blocks.op[b]]] : []),
  ...(blocks.module[b] ? ['module: ' + data.names[blocks.module[b]]] : []),
  'line: ' + (data.names[blocks.source[b]] || 'unknown'),
  `${data.categories[blocks.category[b]]}, ${size(blocks.bytes[b])}` +
    (blocks.taken[b] > blocks.bytes[b] ? `, ${size(blocks.taken[b])} after rounding` : ''),
  ...(whyOf(b) ? [whyOf(b)] : []),
  ...stackText(blocks.stack[b]),
].join('\n');
const liveAt = (event) => {
  const live = [];
  for (let b = 0; b < blocks.begin.length && blocks.begin[b] <= event; ++b) {
    if (event < blocks.end[b]) live.push(b);
  }
  return live;
};
