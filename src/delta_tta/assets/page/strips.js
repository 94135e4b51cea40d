// Strips: a stream as coloured bars, one for each sample in its order of arrival.

const MOST_NAMED = 20;
const MOST_PIXELS = 16384; // browsers refuse much wider canvases

// Okabe and Ito's colours without black, then other turns of them that stand out on light and dark ground.
const CLASS_COLOURS = [
  '#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442', '#8c8c8c', '#7b61c9', '#9a6130',
  '#4a7f10', '#a83d74', '#8a6d00', '#5f6b75', '#a8d8f5', '#ffb26b', '#7fd6ba', '#f0b4d4', '#c2b600', '#c0c0c0',
];
// From dark to light, so that order survives without colour.
const RAMP = [[46, 26, 92], [33, 85, 138], [24, 140, 130], [98, 186, 88], [226, 214, 74], [255, 243, 190]];

function classColour(index, count) {
  if (count <= MOST_NAMED) return CLASS_COLOURS[index % CLASS_COLOURS.length];
  const place = Math.min(Math.max(index / (count - 1), 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(place), RAMP.length - 2);
  const between = RAMP[low].map((value, i) => Math.round(value + (RAMP[low + 1][i] - value) * (place - low)));
  return `rgb(${between.join(' ')})`;
}

function stripsExhibit(strips) {
  const count = Math.max(strips.names.length, ...strips.strips.map((one) => (extent(one.classes) || [0, 0])[1] + 1));
  const name = (index) => strips.names[index] || `class ${index}`;
  const drawn = strips.strips.map((strip) => oneStrip(strip, count, name));
  return [
    classLegend(count, name, (chosen) => drawn.forEach((one) => one.paint(chosen))),
    make('div', { class: 'stack' }, drawn.map((one) => one.box)),
  ];
}

function oneStrip(strip, count, name) {
  const length = strip.classes.length;
  const stride = Math.max(Math.ceil(length / MOST_PIXELS), 1);
  const canvas = make('canvas', { width: Math.max(Math.ceil(length / stride), 1), height: 1, tabindex: 0, role: 'img',
    'aria-label': `${strip.label}: ${stripSummary(strip)}. Arrow keys read the samples.` });
  const pen = canvas.getContext('2d');
  // One pixel a sample, stretched by the style without blending: two neighbours never mix to a third colour.
  const paint = (chosen) => {
    pen.clearRect(0, 0, canvas.width, 1);
    for (let i = 0; i < canvas.width && i * stride < length; i += 1) {
      const index = strip.classes[i * stride];
      pen.globalAlpha = chosen === null || chosen === index ? 1 : 0.12;
      pen.fillStyle = classColour(index, count);
      pen.fillRect(i, 0, 1, 1);
    }
  };
  paint(null);
  readSamples(canvas, strip, count, name);
  const box = make('figure', { class: 'strip' },
    make('figcaption', {}, make('b', {}, strip.label), make('span', { class: 'quantity' }, stripSummary(strip))),
    canvas,
    length > 0 && make('div', { class: 'ends', 'aria-hidden': 'true' },
      make('span', {}, 'sample 1'), make('span', {}, length.toLocaleString('en'))));
  return { box, paint };
}

// How dependent a stream is, in two numbers.
function stripSummary(strip) {
  const { classes } = strip;
  if (!classes.length) return 'no samples';
  let [runs, longest, run] = [1, 1, 1];
  for (let i = 1; i < classes.length; i += 1) {
    run = classes[i] === classes[i - 1] ? run + 1 : 1;
    runs += run === 1;
    longest = Math.max(longest, run);
  }
  const kinds = new Set(classes).size;
  const amount = `${plural(classes.length, 'sample')} of ${kinds} ${kinds === 1 ? 'class' : 'classes'}`;
  return `${amount}, runs of one class: ${fixed(classes.length / runs, 1)} on average, ${longest} at most`;
}

function readSamples(canvas, strip, count, name) {
  const length = strip.classes.length;
  if (!length) return;
  let chosen = -1;
  const choose = (sample, x, y) => {
    chosen = sample;
    const index = strip.classes[sample];
    const square = styled(make('i', { class: 'square' }), { background: classColour(index, count) });
    const where = make('p', { class: 'where' }, `Sample ${(sample + 1).toLocaleString('en')}`);
    tip.show(x, y, [where, make('p', {}, square, name(index))], forget);
  };
  const forget = () => {
    chosen = -1;
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    choose(Math.min(Math.max(Math.floor(share * length), 0), length - 1), event.clientX, event.clientY);
  };
  const step = (by) => {
    const box = canvas.getBoundingClientRect();
    const sample = stepped(chosen, by, length);
    choose(sample, box.left + ((sample + 0.5) / length) * box.width, box.top);
  };
  explore(canvas, at, step);
}

// Few classes: a button each, which picks that class out. Many: the ramp, from the first to the last.
function classLegend(count, name, paint) {
  if (count > MOST_NAMED) {
    const ramp = make('canvas', { width: count, height: 1, 'aria-hidden': 'true' });
    const pen = ramp.getContext('2d');
    for (let i = 0; i < count; i += 1) {
      pen.fillStyle = classColour(i, count);
      pen.fillRect(i, 0, 1, 1);
    }
    return make('div', { class: 'ramp' }, make('span', {}, name(0)), ramp, make('span', {}, name(count - 1)));
  }
  const buttons = Array.from({ length: count }, (_, index) =>
    make('button', { type: 'button', class: 'entry class', 'aria-pressed': 'false' },
      styled(make('i', { class: 'square' }), { background: classColour(index, count) }), name(index)));
  buttons.forEach((button, index) => button.addEventListener('click', () => {
    const on = button.getAttribute('aria-pressed') !== 'true';
    buttons.forEach((other) => other.setAttribute('aria-pressed', String(on && other === button)));
    paint(on ? index : null);
  }));
  return make('div', { class: 'legend classes', role: 'group', 'aria-label': 'Pick out one class' }, buttons);
}
