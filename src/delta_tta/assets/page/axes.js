// Scales and ticks: from values to places on a panel.

// Round numbers that cover a range in about `count` steps.
function niceTicks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const far = (one) => Math.abs(Math.log((one * power) / rough));
  const step = power * [1, 2, 2.5, 5, 10].reduce((best, one) => (far(one) < far(best) ? one : best));
  const ticks = [];
  // Counting in whole steps keeps 0.1 + 0.2 out of the labels.
  for (let turn = Math.ceil(low / step - 1e-9); turn * step <= high + step * 1e-9; turn += 1) {
    ticks.push(Number((turn * step).toPrecision(12)));
  }
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const digit of [1, 2, 5]) ticks.push(digit * 10 ** power);
  }
  const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
  return inside.length > 1 ? inside : [low, high];
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}

// The points of a series that can be drawn; `gap` tells a line where to break.
function points(series, logX) {
  const length = Math.min(series.x.length, series.y.length);
  const all = [];
  for (let i = 0; i < length; i += 1) {
    const [x, y] = [series.x[i], series.y[i]];
    const usable = isNumber(x) && (!logX || x > 0);
    if (usable) all.push({ x, y: isNumber(y) ? y : null });
  }
  return all;
}

const drawable = (series, logX) => points(series, logX).filter((point) => point.y !== null);

// How many digits tell the values of a panel apart: as many for each of them, so that they compare at a glance.
function digitsOf(panel) {
  const values = panel.series.flatMap((one) => drawable(one, false).map((point) => point.y));
  const range = extent(values);
  if (!range || values.every(Number.isInteger)) return 0;
  const span = range[1] - range[0] || Math.abs(range[0]);
  return Math.min(Math.max(2 - Math.floor(Math.log10(span)), 0), 8);
}

// The vertical range of some panels; bars stand on zero, or they would lie about lengths.
function rangeOf(panels, hidden) {
  const shown = panels.flatMap((panel) => panel.series.filter((one) => !hidden.has(one.label)));
  const range = extent(shown.flatMap((one) => drawable(one, false).map((point) => point.y)));
  if (!range) return [0, 1];
  let [low, high] = range;
  if (panels.some((panel) => panel.mark === 'bar')) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
  if (low === high) [low, high] = [low - (Math.abs(low) * 0.05 || 1), high + (Math.abs(high) * 0.05 || 1)];
  return [low, high];
}

// Panels of one quantity get one scale, so that heights compare across them, unless that would flatten one of them.
function verticalRanges(panels, hidden) {
  const own = panels.map((panel) => rangeOf([panel], hidden));
  return panels.map((panel, i) => {
    const peers = panels.filter((other) => other.y_label === panel.y_label && other.mark === panel.mark);
    const common = rangeOf(peers, hidden);
    const flattens = peers.some((peer) => {
      const [low, high] = own[panels.indexOf(peer)];
      return high - low < (common[1] - common[0]) * 0.2;
    });
    return flattens ? own[i] : common;
  });
}

function verticalScale([low, high], top, bottom, bars) {
  const ticks = niceTicks(low, high, 4);
  const room = (high - low) * 0.06;
  const from = bars && low >= 0 ? 0 : low - room;
  const to = bars && high <= 0 ? 0 : high + room;
  return { ticks, to: (value) => bottom - ((value - from) / (to - from)) * (bottom - top) };
}

// The horizontal scale, its ticks, and whether their labels must lean to find room.
function horizontalScale(panel, visible, left, right) {
  const places = [...new Set(visible.flatMap((one) => points(one, panel.log_x).map((point) => point.x)))];
  places.sort((a, b) => a - b);
  const [low, high] = extent(places) || [panel.log_x ? 1 : 0, panel.log_x ? 10 : 1];
  const turn = panel.log_x ? Math.log10 : (value) => value;
  const gap = smallestGap(places.map(turn));
  let [from, to] = [turn(low), turn(high)];
  const room = panel.mark === 'bar' ? gap / 2 : (to - from) * (panel.mark === 'points' ? 0.05 : 0.01);
  [from, to] = to > from || room > 0 ? [from - room, to + room] : [from - 0.5, to + 0.5];
  const at = (value) => left + ((turn(value) - from) / (to - from)) * (right - left);
  const ticks = horizontalTicks(panel, places, low, high, at, right - left);
  return { places, ticks, to: at, gap: (gap / (to - from)) * (right - left) };
}

function smallestGap(sorted) {
  let gap = Infinity;
  for (let i = 1; i < sorted.length; i += 1) gap = Math.min(gap, sorted[i] - sorted[i - 1]);
  return Number.isFinite(gap) && gap > 0 ? gap : 1;
}

const letters = (text) => text.length * 6.4 + 10;

function horizontalTicks(panel, places, low, high, at, width) {
  const named = panel.ticks.filter(([value]) => isNumber(value) && (!panel.log_x || value > 0));
  if (named.length) {
    const inside = named.filter(([value]) => value >= low - 1e-9 && value <= high + 1e-9);
    const needed = inside.reduce((sum, [, text]) => sum + letters(text), 0);
    const lean = inside.length > 1 && (needed > width || crowded(inside, at));
    return { lean, marks: lean ? inside : spaced(inside, at) };
  }
  let values = panel.log_x ? logTicks(low, high) : niceTicks(low, high, width / 85);
  // A sweep over a handful of settings reads best with those settings on its axis.
  if (places.length > 1 && places.length <= 9 && (panel.log_x || panel.mark === 'bar')) values = places;
  return { lean: false, marks: spaced(values.map((value) => [value, plain(value)]), at) };
}

function crowded(marks, at) {
  return marks.some(([value, text], i) => {
    if (i === 0) return false;
    const [before, said] = marks[i - 1];
    return at(value) - at(before) < (letters(text) + letters(said)) / 2;
  });
}

// Leave out every label that would touch the one before it.
function spaced(marks, at) {
  const kept = [];
  for (const mark of marks) {
    if (!kept.length || !crowded([kept[kept.length - 1], mark], at)) kept.push(mark);
  }
  return kept;
}
