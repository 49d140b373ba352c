// The head of the page: verdict, findings, failure, figures; and the list of marks at its end.
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
  $('about').textContent = [`${data.format}: ${number(data.recordedEvents)} events, ${number(data.blockCount)} blocks`]
    .concat(data.settings.map(([name, value]) => `${name} ${value}`))
    .concat(data.unfolded ? ['the tensors of a packed plan are shown for one step'] : [])
    .concat(data.cutOff ? ['the last line is incomplete and was ignored'] : []).join(' · ');
  const figures = [['peak live', size(data.peak)]];
  if (data.allocatedAtPeak > data.peak) figures.push(['after rounding', size(data.allocatedAtPeak)]);
  if (hasReserved) figures.push(['peak reserved', size(data.reservedPeak)]);
  const library = Math.max(...samples.bytes[LIBRARY]);
  if (library > 0) figures.push(['context and libraries', size(library)]);
  if (data.idleAtPeak?.bytes > 0) {
    figures.push([`reserved and idle at the peak, the largest piece ${size(data.idleAtPeak.largest)}`, size(data.idleAtPeak.bytes)]);
  }
  if (data.driverCalls !== null) figures.push(['driver calls', number(data.driverCalls)]);
  figures.push(['retries', number(data.retries), data.retries > 0]);
  figures.push(['out of memory', number(data.outOfMemory), data.outOfMemory > 0]);
  for (const [name, value, bad] of figures) {
    const box = element('div', undefined, bad ? 'bad' : '');
    box.append(element('dt', name), element('dd', value));
    $('figures').append(box);
  }
  const groups = new Map();  // of marks that differ in their event alone
  for (const mark of data.marks) {
    const what = `${mark.kind}: ${size(mark.bytes)}`;
    const where = (mark.op ? `, op ${data.names[mark.op]}` : '') + (mark.tensor ? `, tensor ${data.names[mark.tensor]}` : '') +
      (mark.source ? `, ${data.names[mark.source]}` : '');
    const group = groups.get(what + where) || { what, where, events: [] };
    group.events.push(number(mark.event));
    groups.set(what + where, group);
  }
  for (const { what, where, events } of groups.values()) {
    const times = events.length === 1 ? '' : `${events.length} times, `;
    const last = events.at(-1);
    const when = times + (events[0] === last ? `after event ${last}` : `after events ${events[0]} to ${last}`);
    $('marks').append(element('li', `${what} ${when}${where}`));
  }
  $('marks-section').hidden = data.marks.length === 0;
}
