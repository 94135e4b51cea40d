// One panel: its axes and its marks.

const rule = (x1, y1, x2, y2, kind) => draw('line', { x1, y1, x2, y2, class: kind });
const words = (x, y, anchor, text) => draw('text', { x, y, 'text-anchor': anchor }, text);
const HEIGHT = 230; // without the labels below the axis

function drawPanel(panel, range, hidden, width) {
  const visible = panel.series.filter((one) => !hidden.has(one.label));
  const left = 44;
  const right = width - 10;
  const sketch = horizontalScale(panel, visible, left, right);
  const longest = Math.max(0, ...sketch.ticks.marks.map(([, text]) => text.length));
  const under = sketch.ticks.lean ? Math.min(14 + longest * 3.9, 96) : 24;
  const height = HEIGHT + under;
  const [top, bottom] = [12, height - under - (panel.x_label ? 22 : 4)];
  const y = verticalScale(range, top, bottom, panel.mark === 'bar');
  const frame = { left, right, top, bottom, height, x: sketch, y };
  const svg = draw('svg', { class: 'plot', viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: 'img' });
  svg.setAttribute('aria-label', panelSummary(panel));
  svg.append(gridLines(frame), tickLabels(frame), words((left + right) / 2, height - 6, 'middle', panel.x_label));
  const marks = { line: drawLine, points: drawPoints, bar: drawBars }[panel.mark] || drawLine;
  visible.forEach((series, i) => svg.append(marks(panel, series, frame, i, visible.length)));
  addCrosshair(svg, panel, visible, frame);
  const empty = panel.series.length ? 'All series are turned off' : 'No series';
  if (!visible.length) svg.append(words((left + right) / 2, (top + bottom) / 2, 'middle', empty));
  return svg;
}

function panelSummary(panel) {
  const parts = panel.series.map((one) => {
    const own = drawable(one, panel.log_x);
    if (!own.length) return `${one.label} has no values`;
    const range = extent(own.map((point) => point.y));
    const last = own[own.length - 1];
    return `${one.label} from ${plain(range[0])} to ${plain(range[1])}, last ${plain(last.y)}`;
  });
  const kind = { line: 'Lines', points: 'Points', bar: 'Bars' }[panel.mark];
  const about = `${panel.title}. ${kind}: ${panel.y_label} over ${panel.x_label}.`;
  return `${about} ${parts.join('; ')}. Arrow keys read the values.`;
}

function gridLines({ left, right, bottom, x, y }) {
  const group = draw('g', { class: 'grid', 'aria-hidden': 'true' });
  for (const tick of y.ticks) group.append(rule(left, y.to(tick), right, y.to(tick), tick === 0 ? 'zero' : null));
  group.append(rule(left, bottom, right, bottom, 'base'));
  for (const [value] of x.ticks.marks) group.append(rule(x.to(value), bottom, x.to(value), bottom + 4, 'base'));
  return group;
}

function tickLabels({ left, bottom, x, y }) {
  const group = draw('g', { 'aria-hidden': 'true' });
  for (const tick of y.ticks) group.append(words(left - 8, y.to(tick) + 4, 'end', plain(tick)));
  for (const [value, text] of x.ticks.marks) {
    const across = x.to(value);
    const leaning = { transform: `rotate(-38 ${across + 4} ${bottom + 14})` };
    if (x.ticks.lean) group.append(put(words(across + 4, bottom + 14, 'end', text), leaning));
    else group.append(words(across, bottom + 18, 'middle', text));
  }
  return group;
}

function seriesGroup(series, ...marks) {
  const group = draw('g', { class: 'series', 'data-series': series.label }, ...marks);
  return styled(group, { color: look(series.label).colour });
}

const dot = (x, y, r) => draw('circle', { cx: x, cy: y, r, fill: 'currentColor' });

function drawLine(panel, series, { x, y }) {
  let path = '';
  let pen = 'M';
  const alone = [];
  const all = points(series, panel.log_x);
  all.forEach((point, i) => {
    if (point.y === null) pen = 'M';
    else {
      path += `${pen}${x.to(point.x).toFixed(1)} ${y.to(point.y).toFixed(1)}`;
      // A value between two gaps is a line of no length: it needs a dot to be seen.
      const after = all[i + 1];
      if (pen === 'M' && (!after || after.y === null)) alone.push(point);
      pen = 'L';
    }
  });
  const few = all.length <= 12 ? all.filter((point) => point.y !== null) : alone;
  const line = path && draw('path', { class: 'line', d: path, 'stroke-dasharray': look(series.label).dash || null });
  return seriesGroup(series, line, few.map((point) => dot(x.to(point.x), y.to(point.y), 3)));
}

function drawPoints(panel, series, { x, y }) {
  const own = drawable(series, panel.log_x);
  const [shape, size] = [look(series.label).shape, own.length > 60 ? 3 : 5];
  return seriesGroup(series, own.map((point) => marker(shape, x.to(point.x), y.to(point.y), size)));
}

function marker(shape, x, y, size) {
  const paths = {
    circle: `M${x - size} ${y}a${size} ${size} 0 1 0 ${2 * size} 0a${size} ${size} 0 1 0 ${-2 * size} 0Z`,
    square: `M${x - size * 0.9} ${y - size * 0.9}h${1.8 * size}v${1.8 * size}h${-1.8 * size}Z`,
    triangle: `M${x} ${y - size * 1.15}L${x + size * 1.1} ${y + size * 0.85}H${x - size * 1.1}Z`,
    diamond: `M${x} ${y - size * 1.25}L${x + size * 1.25} ${y}L${x} ${y + size * 1.25}L${x - size * 1.25} ${y}Z`,
  };
  return draw('path', { class: 'marker', d: paths[shape], fill: 'currentColor' });
}

// The bars of one place stand side by side and share most of the room between two places.
function drawBars(panel, series, { x, y }, index, count) {
  const room = Math.min(x.gap * 0.8, 34 * count);
  const wide = room / count;
  const gap = wide > 4 ? 1 : 0;
  const width = Math.max(wide - gap, 0.5);
  return seriesGroup(series, drawable(series, panel.log_x).map((point) => {
    const left = x.to(point.x) - room / 2 + index * wide + gap / 2;
    const [from, to] = [y.to(0), y.to(point.y)];
    return draw('rect', { x: left, y: Math.min(from, to), width, height: Math.abs(to - from), fill: 'currentColor' });
  }));
}

function swatch(label, mark) {
  const { colour, dash, shape } = look(label);
  const sample = {
    line: () => draw('path', { class: 'line', d: 'M1 6H23', 'stroke-dasharray': dash || null }),
    points: () => marker(shape, 6, 6, 4.5),
    bar: () => draw('rect', { x: 1, y: 1, width: 10, height: 10, rx: 1, fill: 'currentColor' }),
  }[mark];
  const size = { width: mark === 'line' ? 24 : 12, height: 12 };
  return styled(draw('svg', { class: 'swatch', ...size, 'aria-hidden': 'true' }, sample()), { color: colour });
}
