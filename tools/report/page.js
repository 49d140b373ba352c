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
    made.style.background = `var(--c${category})`;
    made.setAttribute('aria-hidden', 'true');
    return made;
  };
  const title = (c) => c === LIBRARY ? 'context and libraries' : data.categories[c];
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
  const whyOf = (b) => data.rules[blocks.rule[b]] || (blocks.category[b] ? 'as recorded' : '');
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

  function head() {
    document.title = data.name + ' – Headroom report';
    $('title').textContent = data.name;
    const { sentence, title: leading, findings, failure } = data.verdict;
    const at = leading ? sentence.indexOf(leading + ':') : -1;
    if (at >= 0) {
      $('verdict').append(sentence.slice(0, at), element('strong', leading), sentence.slice(at + leading.length));
    } else {
      $('verdict').textContent = sentence;
    }
    $('verdict').className = failure || findings.length ? 'bad' : '';
    for (const finding of findings) {
      const item = element('li');
      item.append(element('strong', finding.title), ': ' + finding.sentence + '. ', element('span', 'Try: ' + finding.advice + '.', 'advice'));
      $('findings').append(item);
    }
    if (failure) {
      const facts = [['requested', size(failure.requested)], ['at', failure.place], ['why', failure.why],
        ['live', size(failure.live)]];
      if (failure.free !== null) facts.push(['free on the device', size(failure.free)]);
      if (failure.reserved !== null) facts.push(['reserved', size(failure.reserved)],
        ['idle', `${size(failure.idle)} in ${number(failure.pieces)} pieces, the largest of ${size(failure.largest)}`]);
      if (failure.stack) facts.push(['stack', stackText(failure.stack).map((line) => line.trim()).join('\n')]);
      for (const [name, value] of facts) if (value) $('failure').append(element('dt', name), element('dd', value));
    }
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
      pen.fillText(v === 0 ? '0' : plain(v, scale[0]) + ' ' + scale[1], MARGIN.left - 8, y(v));
    }
    pen.textBaseline = 'alphabetic';
    const width = shape.width - MARGIN.left - MARGIN.right;
    const span = byTime ? samples.time[count - 1] - samples.time[0] : samples.event[count - 1];
    const unit = !byTime ? [1, ''] : [[1e9, ' s'], [1e6, ' ms'], [1e3, ' µs'], [1, ' ns']].find(([ns]) => span >= ns) || [1, ' ns'];
    const tick = roundStep(Math.max(span, 1) / unit[0], Math.max(2, Math.floor(width / 110))) * unit[0];
    for (let at = 0; at <= span; at += tick) {
      const px = MARGIN.left + width * at / Math.max(span, 1);
      pen.textAlign = at === 0 ? 'left' : px > shape.width - MARGIN.right - 24 ? 'right' : 'center';
      pen.fillText(at === 0 && !byTime ? 'event 0' : plain(at, unit[0]) + unit[1], px, shape.height - 10);
    }
  }

  // A line where each step begins, with its number where there is room.
  function stepLines(pen) {
    let labelled = -Infinity, drawn = -Infinity;
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
      if (px - labelled < 46) continue;
      labelled = px;
      pen.fillStyle = style('--quiet');
      pen.fillText('step ' + step, px + 3, MARGIN.top + 8);
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
      if (x(s) - marked < 100) continue;
      marked = x(s);
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

  // The live blocks by stack: the roots of the stacks on top, as wide as their bytes.
  let flameBoxes = [], focus = 0, flameRows = 0;
  function flame(listed) {
    const children = new Map(), bytes = new Map(), parents = new Map(), info = new Map();
    const add = (parent, key, node) => {
      if (!info.has(key)) {
        info.set(key, node);
        parents.set(key, parent);
        if (!children.has(parent)) children.set(parent, []);
        children.get(parent).push(key);
      }
      return key;
    };
    const shownAs = new Map();  // node of the data -> key of the drawn node
    const place = (node) => {
      if (node === 0) return 0;
      if (shownAs.has(node)) return shownAs.get(node);
      const chain = [];
      let n = node;
      for (; n > 0 && !shownAs.has(n); n = data.nodes.parent[n]) chain.push(n);
      let at = n > 0 ? shownAs.get(n) : 0;
      for (const next of chain.reverse()) {
        const frame = data.nodes.frame[next];
        if (native || !data.frames.native[frame]) at = add(at, at + '/' + frame, { text: data.frames.text[frame] });
        shownAs.set(next, at);
      }
      return at;
    };
    let whole = 0;
    for (const b of listed) {
      let at = place(blocks.stack[b]);
      const name = data.names[blocks.module[b]] || data.names[blocks.tensor[b]] || data.names[blocks.op[b]] || '';
      if (at === 0) {
        const where = data.names[blocks.source[b]] || (data.hasStacks ? 'no Python frames (backward, or before the history)' : 'no line');
        at = add(0, '0/' + where, { text: where });
      }
      const category = blocks.category[b];
      at = add(at, at + '/#' + category + name, { text: data.categories[category] + (name ? ': ' + name : ''), category, block: b });
      for (let n = at; ; n = parents.get(n)) {
        bytes.set(n, (bytes.get(n) || 0) + blocks.bytes[b]);
        if (n === 0) break;
      }
      whole += blocks.bytes[b];
    }
    if (focus !== 0 && !info.has(focus)) focus = 0;
    const ROW = 19;
    const layout = [];
    const lay = (key, left, width, depth) => {
      if (depth > 90) return;
      layout.push([key, left, width, depth]);
      let from = left;
      for (const child of (children.get(key) || []).sort((a, b) => bytes.get(b) - bytes.get(a))) {
        const part = width * bytes.get(child) / Math.max(1, bytes.get(key));
        if (part * $('flame').clientWidth >= .6) lay(child, from, part, depth + 1);
        from += part;
      }
    };
    if (whole > 0) lay(focus, 0, 1, 0);
    flameRows = layout.reduce((most, box) => Math.max(most, box[3]), 0) + 1;
    $('flame').style.height = Math.max(2, flameRows) * ROW + 'px';
    const { pen, width } = canvas('flame');
    flameBoxes = [];
    for (const [key, left, part, depth] of layout) {
      const node = key === 0 ? { text: 'all live blocks' } : info.get(key);
      const box = [left * width, depth * ROW, Math.max(part * width - 1, .5), ROW - 1];
      pen.fillStyle = node.category !== undefined ? style('--c' + node.category) : style(depth % 2 ? '--flame-a' : '--flame-b');
      pen.fillRect(...box);
      const share = whole > 0 ? (100 * bytes.get(key) / whole).toFixed(1) : '0';
      flameBoxes.push({ box, key, text: `${node.text}\n${size(bytes.get(key))}, ${share} % of what is live` +
        (node.block !== undefined ? '\n' + describe(node.block) : '') });
      if (box[2] < 30) continue;
      pen.fillStyle = node.category !== undefined ? '#000000' : style('--ink');
      pen.textBaseline = 'middle';
      pen.textAlign = 'left';
      pen.save();
      pen.beginPath();
      pen.rect(box[0], box[1], box[2] - 3, box[3]);
      pen.clip();
      pen.fillText(node.text.replace(/^.*\/(?=[^/ ]*:\d+ )/, ''), box[0] + 4, box[1] + ROW / 2);
      pen.restore();
    }
    $('flame-text').textContent = (focus !== 0 ? 'Click the top row to go back. ' : 'Click a frame to enlarge it. ') +
      'The caller is above what it calls.';
    parentsOfFlame = parents;
  }
  let parentsOfFlame = new Map();

  // Key, title, text of a group for search and sort.
  const COLUMNS = [
    ['bytes', (g) => g.bytes], ['share', (g) => g.bytes], ['blocks', (g) => g.count], ['category', (g) => data.categories[g.category]],
    ['line', (g) => data.names[blocks.source[g.block]]], ['module', (g) => data.names[blocks.module[g.block]]],
    ['tensor or op', (g) => g.what], ['why this category', (g) => whyOf(g.block)],
  ];
  let sortBy = 0, descending = true;
  function columns() {
    $('columns').replaceChildren(...COLUMNS.map(([name], i) => {
      const head = element('th'), button = element('button', name + (i === sortBy ? (descending ? ' ↓' : ' ↑') : ''));
      head.scope = 'col';
      head.setAttribute('aria-sort', i !== sortBy ? 'none' : descending ? 'descending' : 'ascending');
      button.type = 'button';
      button.addEventListener('click', () => {
        descending = i === sortBy ? !descending : i < 3;
        sortBy = i;
        ask();
      });
      head.append(button);
      return head;
    }));
  }

  const MAX_ROWS = 200;
  function table(listed) {
    columns();
    const groups = new Map();
    for (const b of listed) {
      const what = data.names[blocks.tensor[b]] || data.names[blocks.op[b]] || '';
      const key = [data.hasModules ? '' : what, blocks.module[b], blocks.source[b], blocks.category[b]].join();
      const group = groups.get(key) || { block: b, bytes: 0, count: 0, category: blocks.category[b], what };
      if (group.what !== what) group.what = '';
      group.bytes += blocks.bytes[b];
      ++group.count;
      groups.set(key, group);
    }
    const wanted = $('search').value.toLowerCase();
    const value = COLUMNS[sortBy][1];
    const list = [...groups.values()]
      .filter((g) => !wanted || COLUMNS.slice(3).some(([, text]) => (text(g) || '').toLowerCase().includes(wanted)))
      .sort((a, b) => {
        const x1 = value(a) || '', x2 = value(b) || '';
        const order = typeof x1 === 'number' && typeof x2 === 'number' ? x1 - x2 : String(x1).localeCompare(String(x2));
        return descending ? -order : order;
      });
    const shown = list.slice(0, MAX_ROWS);
    const all = live(moment);
    $('rows').replaceChildren(...shown.map((group) => {
      const row = element('tr'), category = element('td');
      const { block, bytes, count: of } = group;
      category.append(swatch(group.category), data.categories[group.category]);
      const text = (name) => element('td', name || '–', name ? 'code' : 'code none');
      row.append(element('td', size(bytes)), element('td', (all > 0 ? 100 * bytes / all : 0).toFixed(1) + ' %'),
        element('td', number(of) + (of > 1 ? ' blocks' : ' block')), category, text(data.names[blocks.source[block]]),
        text(data.names[blocks.module[block]]), text(group.what), element('td', whyOf(block), 'why'));
      row.addEventListener('pointermove', (event) => tip(event, describe(block)));
      row.addEventListener('pointerleave', () => { $('tip').hidden = true; });
      return row;
    }));
    const left = all - list.reduce((sum, group) => sum + group.bytes, 0);
    const hiddenRows = list.length - shown.length;
    $('rest').textContent = [
      ...(hiddenRows > 0 ? [`${number(hiddenRows)} more rows.`] : []),
      ...(wanted ? [`${number(list.length)} of ${number(groups.size)} rows match.`] : left > 0 ? [`${size(left)} more in smaller blocks.`] : []),
    ].join(' ');
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
    flame(there);
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
  for (const id of ['chart', 'map', 'flame']) $(id).addEventListener('pointerleave', () => { $('tip').hidden = true; });
  const flameAt = (event) => {
    const [px, py] = place(event);
    return flameBoxes.find(({ box }) => px >= box[0] && px <= box[0] + box[2] && py >= box[1] && py <= box[1] + box[3]);
  };
  $('flame').addEventListener('pointermove', (event) => {
    const hit = flameAt(event);
    tip(event, hit ? hit.text : '');
  });
  $('flame').addEventListener('click', (event) => {
    const hit = flameAt(event);
    if (hit) focus = hit.key === focus ? parentsOfFlame.get(focus) || 0 : hit.key;
    ask();
  });
  $('flame').addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' && event.key !== 'ArrowUp') return;
    focus = parentsOfFlame.get(focus) || 0;
    event.preventDefault();
    ask();
  });
  $('search').addEventListener('input', () => ask());
  $('native').addEventListener('change', (event) => { native = event.target.checked; focus = 0; ask(); });
  $('native-label').hidden = !data.frames.native.some((flag) => flag);
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
