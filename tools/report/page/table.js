// The live blocks as a table that can be sorted and searched.
// Key, title, text of a group for search and sort.
const COLUMNS = [
  ['bytes', (g) => g.bytes], ['share', (g) => g.bytes], ['blocks', (g) => g.count], ['category', (g) => data.categories[g.category]],
  ['line', (g) => data.names[blocks.source[g.block]]], ['module', (g) => data.names[blocks.module[g.block]]],
  ['tensor or op', (g) => g.what], ['why this category', (g) => whyOf(g.block)],
];
const order = { by: 0, descending: true };

const MAX_ROWS = 200;
function table(listed) {
  sortHeads($('columns'), COLUMNS.map(([name], i) => [name, i < 3]), order, ask);
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
  const value = COLUMNS[order.by][1];
  const list = [...groups.values()]
    .filter((g) => !wanted || COLUMNS.slice(3).some(([, text]) => (text(g) || '').toLowerCase().includes(wanted)))
    .sort((a, b) => inOrder(order, value(a) || '', value(b) || ''));
  const shown = list.slice(0, MAX_ROWS);
  const all = live(moment);
  $('rows').replaceChildren(...shown.map((group) => {
    const row = element('tr'), category = element('td');
    const { block, bytes, count: of } = group;
    category.append(swatch(group.category), data.categories[group.category]);
    const text = (name) => element('td', name || '–', name ? 'code' : 'code none');
    row.append(element('td', size(bytes), 'n'), element('td', (all > 0 ? 100 * bytes / all : 0).toFixed(1) + ' %', 'n'),
      element('td', number(of) + (of > 1 ? ' blocks' : ' block'), 'n'), category, text(data.names[blocks.source[block]]),
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
