// The blocks by address at the chosen moment.
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
