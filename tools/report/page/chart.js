// Memory over time: the legend, the stacked areas and the lines over them.

// A canvas in the pixels of the screen, cleared; the other drawings use it, too.
function canvas(id) {
  const c = $(id), ratio = window.devicePixelRatio || 1;
  const box = { width: c.clientWidth, height: c.clientHeight };
  c.width = Math.round(box.width * ratio);
  c.height = Math.round(box.height * ratio);
  const pen = c.getContext('2d');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
  return { pen, ...box };
}

function legend() {
  const list = $('legend');
  list.replaceChildren();
  for (const c of [...present].reverse()) {
    const item = element('li'), button = element('button');
    button.type = 'button';
    button.title = 'show or hide';
    button.setAttribute('aria-pressed', !hidden.has(c));
    button.append(swatch(c), element('span', title(c)), element('span', size(samples.bytes[c][moment]), 'value'));
    button.addEventListener('click', () => {
      if (!hidden.delete(c)) hidden.add(c);
      measure();
      show();
      $('legend').children[[...present].reverse().indexOf(c)].firstChild.focus();
    });
    item.append(button);
    list.append(item);
  }
  if (hasReserved) {
    const item = element('li');
    item.append(element('span', '', 'swatch line'), element('span', 'reserved by the strategy'),
      element('span', size(samples.reserved[moment]), 'value'));
    list.append(item);
  }
}

// The line of reserved memory starts above context and libraries, which are not part of it.
const total = (s) => used.reduce((sum, c) => sum + samples.bytes[c][s], 0);
const live = (s) => present.reduce((sum, c) => sum + (c === LIBRARY ? 0 : samples.bytes[c][s]), 0);
const reservedTop = (s) => samples.reserved[s] + (hidden.has(LIBRARY) ? 0 : samples.bytes[LIBRARY][s]);
let highest = 1;
function measure() {
  used = present.filter((c) => !hidden.has(c));
  highest = 1;
  for (let s = 0; s < count; ++s) highest = Math.max(highest, total(s), hasReserved ? reservedTop(s) : 0);
}
// Above the areas: a row for failures, one for the numbers of steps, and the handle of the moment.
const failed = data.marks.filter((mark) => mark.kind === 'out of memory');
const MARGIN = { left: 78, right: 14, top: 14 + (failed.length > 0 ? 16 : 0) + (data.steps.length > 0 ? 16 : 0), bottom: 30 };
let shape = null;

const position = (s) => {
  const axis = byTime ? samples.time : samples.event, first = byTime ? axis[0] : 0, last = axis[count - 1];
  return last > first ? (axis[s] - first) / (last - first) : count > 1 ? s / (count - 1) : 0;
};
const x = (s) => MARGIN.left + position(s) * (shape.width - MARGIN.left - MARGIN.right);
const y = (bytes) => shape.height - MARGIN.bottom -
  bytes / highest * (shape.height - MARGIN.top - MARGIN.bottom);

// At most `most` round steps up to `span`: 1, 2 or 5 times a power of ten.
const roundStep = (span, most) => {
  const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((f) => f * power).find((step) => step >= raw * (1 - 1e-9));
};
const plain = (value, unit) => parseFloat((value / unit).toPrecision(6)).toLocaleString('en');

function grid(pen) {
  const scale = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']].find(([unit]) => highest >= unit);
  const step = Math.max(roundStep(highest / scale[0], 5) * scale[0], 1);
  pen.strokeStyle = style('--line');
  pen.fillStyle = style('--quiet');
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  for (let v = 0; v <= highest; v += step) {
    pen.beginPath();
    pen.moveTo(MARGIN.left, y(v));
    pen.lineTo(shape.width - MARGIN.right, y(v));
    pen.stroke();
    pen.fillText(plain(v, scale[0]) + ' ' + scale[1], MARGIN.left - 8, y(v));
  }
  pen.textBaseline = 'alphabetic';
  const width = shape.width - MARGIN.left - MARGIN.right;
  const span = byTime ? samples.time[count - 1] - samples.time[0] : samples.event[count - 1];
  const unit = !byTime ? [1, ''] : [[1e9, ' s'], [1e6, ' ms'], [1e3, ' µs'], [1, ' ns']].find(([ns]) => span >= ns) || [1, ' ns'];
  const tick = roundStep(Math.max(span, 1) / unit[0], Math.max(3, Math.floor(width / 90))) * unit[0];
  for (let at = 0; at <= span; at += tick) {
    const px = MARGIN.left + width * at / Math.max(span, 1);
    pen.textAlign = at === 0 ? 'left' : px > shape.width - MARGIN.right - 34 ? 'right' : 'center';
    pen.fillText((byTime ? '' : 'event ') + plain(at, unit[0]) + unit[1], px, shape.height - 10);
  }
}

// A line where each step begins, with its number where there is room.
function stepLines(pen) {
  let labeled = -Infinity, drawn = -Infinity;
  pen.textAlign = 'left';
  pen.lineWidth = 1;
  for (let i = 0; i < data.steps.length; ++i) {
    const [event, step] = data.steps[i];
    if (step === 0 || (i > 0 && data.steps[i - 1][1] === step)) continue;
    let s = samples.event.findIndex((at) => at > event);
    if (s < 0) s = count - 1;
    const px = x(s);
    if (px - drawn < 6) continue;
    drawn = px;
    pen.strokeStyle = style('--line');
    pen.setLineDash([2, 3]);
    pen.beginPath();
    pen.moveTo(px, MARGIN.top);
    pen.lineTo(px, shape.height - MARGIN.bottom);
    pen.stroke();
    pen.setLineDash([]);
    if (px - labeled < 46) continue;
    labeled = px;
    pen.fillStyle = style('--quiet');
    const text = 'step ' + step;
    pen.fillText(text, Math.min(px, shape.width - pen.measureText(text).width - 4), MARGIN.top - 14);
  }
}

function chart() {
  const { pen, width, height } = canvas('chart');
  shape = { width, height };
  grid(pen);
  const below = new Float64Array(count);
  for (const c of used) {
    pen.beginPath();
    pen.moveTo(x(0), y(below[0]));
    for (let s = 0; s < count; ++s) {
      if (s > 0) pen.lineTo(x(s), y(below[s - 1] + samples.bytes[c][s - 1]));
      pen.lineTo(x(s), y(below[s] + samples.bytes[c][s]));
    }
    for (let s = count - 1; s >= 0; --s) {
      pen.lineTo(x(s), y(below[s]));
      if (s > 0) pen.lineTo(x(s), y(below[s - 1]));
    }
    pen.closePath();
    pen.fillStyle = fill(pen, c);
    pen.fill();
    for (let s = 0; s < count; ++s) below[s] += samples.bytes[c][s];
  }
  stepLines(pen);
  pen.strokeStyle = style('--ink');
  if (hasReserved) {
    pen.lineWidth = 1.5;
    pen.setLineDash([5, 4]);
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (let s = 0; s < count; ++s) {
      if (s > 0) pen.lineTo(x(s), y(reservedTop(s - 1)));
      pen.lineTo(x(s), y(reservedTop(s)));
    }
    pen.stroke();
    pen.setLineDash([]);
  }
  let marked = -Infinity;
  for (const mark of failed) {
    let s = samples.event.findIndex((event) => event >= mark.event);
    if (s < 0) s = count - 1;
    pen.strokeStyle = pen.fillStyle = style('--bad');
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x(s), 4);
    pen.lineTo(x(s), height - MARGIN.bottom);
    pen.stroke();
    if (x(s) - marked < 100) continue;
    marked = x(s);
    pen.textAlign = x(s) > width / 2 ? 'right' : 'left';
    pen.fillText('out of memory', x(s) + (x(s) > width / 2 ? -5 : 5), 14);
  }
  pen.strokeStyle = pen.fillStyle = style('--ink');
  pen.lineWidth = 2;
  pen.beginPath();
  pen.moveTo(x(moment), MARGIN.top - 6);
  pen.lineTo(x(moment), height - MARGIN.bottom);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x(moment) - 6, MARGIN.top - 10);
  pen.lineTo(x(moment) + 6, MARGIN.top - 10);
  pen.lineTo(x(moment), MARGIN.top - 2);
  pen.fill();
}

const sampleAt = (px) => {
  let low = 0, high = count - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (x(middle) <= px) low = middle; else high = middle - 1;
  }
  return low;
};

// The block at that height. Inside a category the oldest block is lowest.
function under(s, py) {
  let bytes = (shape.height - MARGIN.bottom - py) / (shape.height - MARGIN.top - MARGIN.bottom) * highest;
  if (bytes < 0) return null;
  for (const c of used) {
    if (bytes >= samples.bytes[c][s]) {
      bytes -= samples.bytes[c][s];
      continue;
    }
    if (c === LIBRARY) return { text: title(c) + ', ' + size(samples.bytes[c][s]) };
    for (const b of liveAt(samples.event[s])) {
      if (blocks.category[b] !== c) continue;
      if (bytes < blocks.bytes[b]) return { text: describe(b) };
      bytes -= blocks.bytes[b];
    }
    return { text: `small blocks of ${data.categories[c]}` };
  }
  return null;
}
