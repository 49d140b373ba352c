// The blocks by address at the chosen moment.
let drawn = [];

// The ranges of addresses in use, joined where they meet: [begin, end, place in the map]. A gap between two takes little of
// the map, whatever its bytes.
function stretchesOf(ranges) {
  const stretches = [];
  for (const [at, bytes] of ranges.sort((a, b) => a[0] - b[0])) {
    const last = stretches.at(-1);
    if (last && at <= last[1]) last[1] = Math.max(last[1], at + bytes); else stretches.push([at, at + bytes, 0]);
  }
  const used = stretches.reduce((sum, [begin, end]) => sum + end - begin, 0);
  const gap = Math.min(used / 2000, used / 10 / Math.max(1, stretches.length));
  let place = 0;
  for (const stretch of stretches) {
    stretch[2] = place;
    place += stretch[1] - stretch[0] + gap;
  }
  return { stretches, used, whole: place - gap };
}

function map(shown) {
  const { pen, width, height } = canvas('map');
  const event = samples.event[moment], rows = 18, gap = 3;
  const segments = data.segments.filter(([, , begin, end]) => begin <= event && event < end);
  const { stretches, used: inUse, whole } = stretchesOf(
    [...segments, ...shown.map((b) => [blocks.at[b], blocks.taken[b]])].filter(([, bytes]) => bytes > 0));
  const rowBytes = Math.max(1, whole / rows), rowHeight = height / rows;
  drawn = [];
  // Draws a range of bytes, over several rows if need be.
  const paint = (from, bytes, block) => {
    let low = 0, high = stretches.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (stretches[middle][0] <= from) low = middle; else high = middle - 1;
    }
    for (let at = from - stretches[low][0] + stretches[low][2], left = bytes; left > rowBytes * 1e-9;) {
      const row = Math.min(rows - 1, Math.floor(at / rowBytes + 1e-9)), part = Math.min(left, (row + 1) * rowBytes - at);
      if (part <= 0) break;
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
  for (const [at, bytes] of segments) if (bytes > 0) paint(at, bytes);
  const fills = data.categories.map((_, c) => fill(pen, c));
  for (const b of shown) {
    pen.fillStyle = fills[blocks.category[b]];
    if (blocks.taken[b] > 0) paint(blocks.at[b], blocks.taken[b], b);
  }
  $('map-text').textContent = data.hasAddresses
    ? `${size(inUse)} in use or reserved, row by row in the order of addresses; a thin gap stands for addresses that nothing uses` +
      (hasReserved ? '; grey: reserved and idle' : '') + '.'
    : 'This trace has no addresses: blocks are placed by best fit.';
}
