// Draws the report from the data in the page. Names come from an untrusted file: they reach the page as
// textContent or on a canvas, never as markup.
'use strict';
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const $ = (id) => document.getElementById(id);
  const samples = data.samples, blocks = data.blocks, count = samples.event.length;
  const LIBRARY = 7;
  // From the bottom of the stack up: what lives longest first.
  const ORDER = [7, 1, 3, 5, 4, 2, 6, 0];
  const present = ORDER.filter((c) => samples.bytes[c].some((b) => b > 0));
  // Context and libraries may take many times what tensors take, and would hide them.
  const hidden = new Set(Math.max(...samples.bytes[LIBRARY]) > data.peak ? [LIBRARY] : []);
  let used = [];
  const hasReserved = data.reservedPeak !== null;
  const timed = samples.time[count - 1] > samples.time[0];
  // The events of an unfolded step have the same time.
  let byTime = timed && !data.unfolded, moment = data.peakSample;

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
    made.style.background = `var(--c${category})`;
    made.setAttribute('aria-hidden', 'true');
    return made;
  };
  const title = (c) => c === LIBRARY ? 'context and libraries' : data.categories[c];
  const when = (s) => `event ${number(samples.event[s])} of ${number(data.events)}` +
    (timed ? `, ${seconds(samples.time[s] - samples.time[0])} after the first` : '');
  const describe = (b) => [
    data.names[blocks.tensor[b]] || '(no tensor named)',
    'op: ' + (data.names[blocks.op[b]] || 'unknown'),
    'source: ' + (data.names[blocks.source[b]] || 'unknown'),
    `${data.categories[blocks.category[b]]}, ${size(blocks.bytes[b])}` +
      (blocks.taken[b] > blocks.bytes[b] ? `, ${size(blocks.taken[b])} after rounding` : ''),
  ].join('\n');
  const liveAt = (event) => {
    const live = [];
    for (let b = 0; b < blocks.begin.length && blocks.begin[b] <= event; ++b) {
      if (event < blocks.end[b]) live.push(b);
    }
    return live;
  };

  function head() {
    document.title = data.name + ' – Headroom report';
    $('title').textContent = data.name;
    $('about').textContent = [`${data.format}: ${number(data.events)} events, ${number(data.blockCount)} blocks`]
      .concat(data.settings.map(([name, value]) => `${name} ${value}`))
      .concat(data.unfolded ? ['the tensors of a packed plan are shown for one step'] : [])
      .concat(data.cutOff ? ['the last line is incomplete and was ignored'] : []).join(' · ');
    const figures = [['peak live', size(data.peak)]];
    if (data.allocatedAtPeak > data.peak) figures.push(['after rounding', size(data.allocatedAtPeak)]);
    if (hasReserved) figures.push(['peak reserved', size(data.reservedPeak)]);
    const library = Math.max(...samples.bytes[LIBRARY]);
    if (library > 0) figures.push(['context and libraries', size(library)]);
    if (data.fragmentation !== null) figures.push(['fragmentation at the peak', (100 * data.fragmentation).toFixed(1) + ' %']);
    if (data.driverCalls !== null) figures.push(['driver calls', number(data.driverCalls)]);
    figures.push(['retries', number(data.retries), data.retries > 0]);
    figures.push(['out of memory', number(data.outOfMemory), data.outOfMemory > 0]);
    for (const [name, value, bad] of figures) {
      const box = element('div', undefined, bad ? 'bad' : '');
      box.append(element('dt', name), element('dd', value));
      $('figures').append(box);
    }
    for (const mark of data.marks) {
      $('marks').append(element('li', `${mark.kind}: ${size(mark.bytes)} after event ${number(mark.event)}` +
        (mark.op ? `, op ${data.names[mark.op]}` : '') + (mark.tensor ? `, tensor ${data.names[mark.tensor]}` : '') +
        (mark.source ? `, ${data.names[mark.source]}` : '')));
    }
    $('marks-section').hidden = data.marks.length === 0;
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
  const MARGIN = { left: 78, right: 14, top: 14, bottom: 30 };
  let shape = null;

  const position = (s) => {
    const axis = byTime ? samples.time : samples.event, first = byTime ? axis[0] : 0, last = axis[count - 1];
    return last > first ? (axis[s] - first) / (last - first) : count > 1 ? s / (count - 1) : 0;
  };
  const x = (s) => MARGIN.left + position(s) * (shape.width - MARGIN.left - MARGIN.right);
  const y = (bytes) => shape.height - MARGIN.bottom -
    bytes / highest * (shape.height - MARGIN.top - MARGIN.bottom);

  function grid(pen) {
    const unit = 2 ** (10 * Math.min(4, Math.floor(Math.log2(highest) / 10)));
    const raw = highest / unit / 4, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= raw) * unit;
    pen.strokeStyle = style('--line');
    pen.fillStyle = style('--quiet');
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    for (let v = 0; v <= highest; v += step) {
      pen.beginPath();
      pen.moveTo(MARGIN.left, y(v));
      pen.lineTo(shape.width - MARGIN.right, y(v));
      pen.stroke();
      pen.fillText(v === 0 ? '0' : size(v).replace('.00', ''), MARGIN.left - 8, y(v));
    }
    pen.textBaseline = 'alphabetic';
    const ticks = shape.width < 520 ? 2 : 4;
    for (let i = 0; i <= ticks; ++i) {
      pen.textAlign = i === 0 ? 'left' : i === ticks ? 'right' : 'center';
      const span = byTime ? samples.time[count - 1] - samples.time[0] : samples.event[count - 1];
      const text = byTime ? seconds(span * i / ticks) : number(Math.round(span * i / ticks));
      pen.fillText(i === 0 ? (byTime ? '0 s' : 'event 0') : text,
        MARGIN.left + (shape.width - MARGIN.left - MARGIN.right) * i / ticks, shape.height - 10);
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
      pen.fillStyle = style('--c' + c);
      pen.fill();
      for (let s = 0; s < count; ++s) below[s] += samples.bytes[c][s];
    }
    pen.strokeStyle = style('--ink');
    if (hasReserved) {
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
    for (const mark of data.marks) {
      if (mark.kind !== 'out of memory') continue;
      let s = samples.event.findIndex((event) => event >= mark.event);
      if (s < 0) s = count - 1;
      pen.strokeStyle = pen.fillStyle = '#cf222e';
      pen.lineWidth = 1.5;
      pen.beginPath();
      pen.moveTo(x(s), MARGIN.top);
      pen.lineTo(x(s), height - MARGIN.bottom);
      pen.stroke();
      pen.textAlign = x(s) > width / 2 ? 'right' : 'left';
      pen.fillText('out of memory', x(s) + (x(s) > width / 2 ? -5 : 5), MARGIN.top + 24);
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

  let drawn = [];
  function map(shown) {
    const { pen, width, height } = canvas('map');
    const event = samples.event[moment], rows = 18, gap = 3;
    const rowBytes = Math.max(1, Math.ceil(data.mapBytes / rows)), rowHeight = height / rows;
    drawn = [];
    // Draws a range of bytes, over several rows if need be.
    const paint = (from, bytes, block) => {
      for (let at = from, left = bytes; left > 0;) {
        const row = Math.floor(at / rowBytes), part = Math.min(left, (row + 1) * rowBytes - at);
        if (row >= rows || part <= 0) break;
        const box = [(at - row * rowBytes) / rowBytes * width, row * rowHeight + gap / 2,
          part / rowBytes * width, rowHeight - gap];
        const line = block !== undefined && box[2] > 3 ? 1 : 0;
        pen.fillRect(box[0], box[1], Math.max(box[2] - line, .5), box[3]);
        if (block !== undefined) drawn.push([...box, block]);
        at += part;
        left -= part;
      }
    };
    pen.fillStyle = style('--idle');
    for (const [at, bytes, begin, end] of data.segments) if (begin <= event && event < end) paint(at, bytes);
    for (const b of shown) {
      pen.fillStyle = style('--c' + blocks.category[b]);
      paint(blocks.at[b], blocks.taken[b], b);
    }
  }

  function table(listed) {
    const groups = new Map();
    for (const b of listed) {
      const key = [blocks.tensor[b], blocks.op[b], blocks.source[b], blocks.category[b]].join();
      const group = groups.get(key) || { block: b, bytes: 0, count: 0 };
      group.bytes += blocks.bytes[b];
      ++group.count;
      groups.set(key, group);
    }
    const list = [...groups.values()].sort((a, b) => b.bytes - a.bytes), shown = list.slice(0, 60);
    const all = live(moment);
    $('rows').replaceChildren(...shown.map(({ block, bytes, count: of }) => {
      const row = element('tr'), category = element('td');
      category.append(swatch(blocks.category[block]), data.categories[blocks.category[block]]);
      row.append(element('td', number(bytes)), element('td', (bytes / 2 ** 20).toFixed(2)),
        element('td', (all > 0 ? 100 * bytes / all : 0).toFixed(1) + ' %'), category,
        element('td', (data.names[blocks.tensor[block]] || '–') + (of > 1 ? `  (${number(of)} blocks)` : '')),
        element('td', data.names[blocks.op[block]] || '–'), element('td', data.names[blocks.source[block]] || '–'));
      return row;
    }));
    const left = all - shown.reduce((sum, group) => sum + group.bytes, 0);
    $('rest').textContent = left > 0 ? `${size(left)} more in smaller blocks.` : '';
  }

  function show() {
    const there = liveAt(samples.event[moment]);
    const atPeak = moment === data.peakSample;
    const text = `${when(moment)}: ${size(live(moment))} live` + (hasReserved ? `, ${size(samples.reserved[moment])} reserved` : '');
    $('moment').value = moment;
    $('moment').setAttribute('aria-valuetext', text);
    $('moment-text').textContent = text + (atPeak ? ' – the peak' : '');
    $('map-head').textContent = atPeak ? 'Block map at the peak' : 'Block map at ' + when(moment);
    $('table-head').textContent = atPeak ? 'Live at the peak' : 'Live at ' + when(moment);
    $('map-text').textContent = data.hasAddresses
      ? `${size(data.mapBytes)}, row by row in the order of addresses` + (hasReserved ? '; grey: reserved and idle' : '') + '.'
      : 'This trace has no addresses: blocks are placed by first fit.';
    $('by-time').setAttribute('aria-pressed', byTime);
    $('by-event').setAttribute('aria-pressed', !byTime);
    legend();
    chart();
    map(there);
    table(there);
  }

  let asked = false;
  const ask = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; show(); });
  };
  const select = (s) => { moment = Math.max(0, Math.min(count - 1, s)); ask(); };

  const tip = (event, text) => {
    const box = $('tip');
    box.hidden = !text;
    if (!text) return;
    box.textContent = text;
    const left = Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8);
    const under = event.clientY + 18, fits = under + box.offsetHeight < innerHeight;
    box.style.left = Math.max(4, left) + 'px';
    box.style.top = Math.max(4, fits ? under : event.clientY - box.offsetHeight - 12) + 'px';
  };
  const place = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  $('chart').addEventListener('pointermove', (event) => {
    const [px, py] = place(event), s = sampleAt(px), found = under(s, py);
    tip(event, (found ? found.text + '\n' : '') + when(s));
    if (event.buttons & 1) select(s);
  });
  $('chart').addEventListener('pointerdown', (event) => select(sampleAt(place(event)[0])));
  $('map').addEventListener('pointermove', (event) => {
    const [px, py] = place(event);
    const hit = drawn.find(([left, top, w, h]) => px >= left && px <= left + w && py >= top && py <= top + h);
    tip(event, hit ? describe(hit[4]) : '');
  });
  for (const id of ['chart', 'map']) $(id).addEventListener('pointerleave', () => { $('tip').hidden = true; });
  $('moment').max = count - 1;
  $('moment').addEventListener('input', (event) => select(Number(event.target.value)));
  $('to-peak').addEventListener('click', () => select(data.peakSample));
  $('by-time').addEventListener('click', () => { byTime = true; ask(); });
  $('by-event').addEventListener('click', () => { byTime = false; ask(); });
  $('by-time').disabled = !timed;
  addEventListener('resize', ask);
  addEventListener('beforeprint', show);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', ask);
  head();
  measure();
  show();
})();
