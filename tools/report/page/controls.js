// Draws all for the chosen moment, and again when the reader chooses something else.
function show() {
  const there = liveAt(samples.event[moment]);
  const atPeak = moment === data.peakSample;
  const text = `${when(moment)}: ${size(live(moment))} live` + (hasReserved ? `, ${size(samples.reserved[moment])} reserved` : '');
  $('moment').value = moment;
  $('moment').setAttribute('aria-valuetext', text);
  $('moment-text').textContent = text + (atPeak ? ' – the peak' : '');
  $('map-head').textContent = atPeak ? 'Block map at the peak' : 'Block map at ' + when(moment);
  $('table-head').textContent = atPeak ? 'Live at the peak' : 'Live at ' + when(moment);
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
