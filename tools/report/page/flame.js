// The live blocks by stack: the roots of the stacks on top, as wide as their bytes.
let flameBoxes = [], focus = 0, parentsOfFlame = new Map();
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
  const flameRows = layout.reduce((most, box) => Math.max(most, box[3]), 0) + 1;
  $('flame').style.height = Math.max(2, flameRows) * ROW + 'px';
  const { pen, width } = canvas('flame');
  flameBoxes = [];
  for (const [key, left, part, depth] of layout) {
    const node = key === 0 ? { text: 'all live blocks' } : info.get(key);
    const box = [left * width, depth * ROW, Math.max(part * width - 1, .5), ROW - 1];
    pen.fillStyle = node.category !== undefined ? fill(pen, node.category) : style(depth % 2 ? '--flame-a' : '--flame-b');
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
