// The live blocks as a table by line: a line that allocates in several modules is one row, which unfolds.
// Key, title, text of a row for search and sort.
const COLUMNS = [
  ['bytes', (r) => r.bytes], ['share', (r) => r.bytes], ['blocks', (r) => r.count], ['category', (r) => data.categories[r.category]],
  ['line', (r) => data.names[blocks.source[r.block]]], ['module', (r) => data.names[blocks.module[r.block]]],
  ['tensor or op', (r) => r.what], ['why this category', (r) => whyOf(r.block)],
];
const order = { by: 0, descending: true };
const unfolded = new Set();  // lines, by the number of their name

const MAX_ROWS = 200;
const plural = (n, one) => `${number(n)} ${one}${n === 1 ? '' : 's'}`;

// A row for each line, module and category of the blocks.
function partsOf(listed) {
  const parts = new Map();
  for (const b of listed) {
    const what = data.names[blocks.tensor[b]] || data.names[blocks.op[b]] || '';
    const key = [data.hasModules ? '' : what, blocks.module[b], blocks.source[b], blocks.category[b]].join();
    const part = parts.get(key) || { block: b, bytes: 0, count: 0, category: blocks.category[b], what };
    if (part.what !== what) part.what = '';
    part.bytes += blocks.bytes[b];
    ++part.count;
    parts.set(key, part);
  }
  return [...parts.values()];
}

// The rows of a line as one, with the sum of them. Blocks without a line are not of one line.
function groupsOf(parts) {
  const groups = new Map();
  for (const part of parts) {
    const source = blocks.source[part.block], key = source || part;
    const group = groups.get(key);
    if (!group) {
      groups.set(key, { ...part, source, largest: part.bytes, parts: [part] });
      continue;
    }
    group.parts.push(part);
    if (part.bytes > group.largest) [group.largest, group.block, group.category] = [part.bytes, part.block, part.category];
    group.bytes += part.bytes;
    group.count += part.count;
  }
  return [...groups.values()];
}

function rowOf(row, all) {
  const made = element('tr'), { block, parts } = row, isGroup = parts !== undefined && parts.length > 1;
  const category = element('td'), line = element('td', undefined, 'code');
  const kinds = isGroup ? [...new Set(parts.map((part) => part.category))] : [row.category];
  category.append(...kinds.map(swatch), kinds.length > 1 ? `${kinds.length} categories` : data.categories[kinds[0]]);
  const text = (name) => element('td', name || '–', name ? 'code' : 'code none');
  const source = data.names[blocks.source[block]];
  if (isGroup) {
    const isOpen = unfolded.has(row.source), fold = element('button', (isOpen ? '▾ ' : '▸ ') + source);
    fold.type = 'button';
    fold.dataset.line = row.source;
    fold.setAttribute('aria-expanded', isOpen);
    fold.addEventListener('click', () => {
      if (!unfolded.delete(row.source)) unfolded.add(row.source);
      show();
      document.querySelector(`#rows button[data-line="${row.source}"]`)?.focus();
    });
    line.append(fold);
    made.className = 'group';
  } else {
    line.textContent = source || '–';
    if (!source) line.classList.add('none');
    if (parts === undefined) made.className = 'part';
  }
  const modules = isGroup ? new Set(parts.map((part) => blocks.module[part.block])).size : 1;
  made.append(element('td', size(row.bytes), 'n'), element('td', (all > 0 ? 100 * row.bytes / all : 0).toFixed(1) + ' %', 'n'),
    element('td', plural(row.count, 'block'), 'n'), category, line,
    modules > 1 ? element('td', plural(modules, 'module')) : text(data.names[blocks.module[block]]),
    isGroup && row.parts.some((part) => part.what !== row.what) ? text('') : text(row.what),
    element('td', kinds.length > 1 ? '' : whyOf(block), 'why'));
  if (!isGroup) {
    made.addEventListener('pointermove', (event) => tip(event, describe(block)));
    made.addEventListener('pointerleave', () => { $('tip').hidden = true; });
  }
  return made;
}

function table(listed) {
  sortHeads($('columns'), COLUMNS.map(([name], i) => [name, i < 3]), order, ask);
  const parts = partsOf(listed), wanted = $('search').value.toLowerCase();
  const found = parts.filter((r) => !wanted ||
    COLUMNS.slice(3).some(([, text]) => (text(r) || '').toLowerCase().includes(wanted)));
  const value = COLUMNS[order.by][1];
  const sorted = (rows) => rows.sort((a, b) => inOrder(order, value(a) || '', value(b) || ''));
  const list = [];
  for (const group of sorted(groupsOf(found))) {
    list.push(group);
    if (group.parts.length > 1 && unfolded.has(group.source)) list.push(...sorted(group.parts));
  }
  const all = live(moment);
  $('rows').replaceChildren(...list.slice(0, MAX_ROWS).map((row) => rowOf(row, all)));
  const left = all - found.reduce((sum, part) => sum + part.bytes, 0);
  const hiddenRows = Math.max(0, list.length - MAX_ROWS);
  $('rest').textContent = [
    ...(hiddenRows > 0 ? [`${number(hiddenRows)} more rows.`] : []),
    ...(wanted ? [`${number(found.length)} of ${number(parts.length)} rows match.`] : left > 0 ? [`${size(left)} more in smaller blocks.`] : []),
  ].join(' ');
}
