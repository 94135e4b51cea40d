// One panel: its axes and its marks.

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
  const svg = draw('svg', { class: 'plot', viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: 'img', 'aria-label': panelSummary(panel) });
  svg.append(gridLines(frame), tickLabels(frame), axisTitle(panel, frame));
  const marks = { line: drawLine, points: drawPoints, bar: drawBars }[panel.mark] || drawLine;
  visible.forEach((series, i) => svg.append(marks(panel, series, frame, i, visible.length)));
  addCrosshair(svg, panel, visible, frame);
  if (!visible.length) svg.append(draw('text', { class: 'tick', x: (left + right) / 2, y: (top + bottom) / 2, 'text-anchor': 'middle' }, 'All series are turned off'));
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
  return `${panel.title}. ${kind}: ${panel.y_label} over ${panel.x_label}. ${parts.join('; ')}. Arrow keys read the values.`;
}

function gridLines({ left, right, top, bottom, y, x }) {
  const group = draw('g', { class: 'grid', 'aria-hidden': 'true' });
  for (const tick of y.ticks) group.append(draw('line', { x1: left, x2: right, y1: y.to(tick), y2: y.to(tick), class: tick === 0 ? 'zero' : null }));
  group.append(draw('line', { x1: left, x2: right, y1: bottom, y2: bottom, class: 'base' }));
  for (const [value] of x.ticks.marks) group.append(draw('line', { x1: x.to(value), x2: x.to(value), y1: bottom, y2: bottom + 4, class: 'base' }));
  return group;
}

function tickLabels({ left, bottom, x, y }) {
  const group = draw('g', { 'aria-hidden': 'true' });
  for (const tick of y.ticks) group.append(draw('text', { class: 'tick', x: left - 8, y: y.to(tick) + 4, 'text-anchor': 'end' }, plain(tick)));
  for (const [value, text] of x.ticks.marks) {
    const [across, down] = [x.to(value), bottom + 18];
    const lean = x.ticks.lean && { 'text-anchor': 'end', transform: `rotate(-38 ${across + 4} ${down - 4})`, x: across + 4, y: down - 4 };
    group.append(draw('text', { class: 'tick', x: across, y: down, 'text-anchor': 'middle', ...lean }, text));
  }
  return group;
}

function axisTitle(panel, { left, right, height }) {
  return draw('text', { class: 'axis', x: (left + right) / 2, y: height - 6, 'text-anchor': 'middle', 'aria-hidden': 'true' }, panel.x_label);
}

const seriesGroup = (series) => styled(draw('g', { class: 'series', 'data-series': series.label }), { color: look(series.label).colour });

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
  const line = draw('path', { d: path, fill: 'none', stroke: 'currentColor', 'stroke-width': 2, 'stroke-linejoin': 'round', 'stroke-linecap': 'round', 'stroke-dasharray': look(series.label).dash || null });
  return put(seriesGroup(series), {}, [path && line, few.map((point) => draw('circle', { cx: x.to(point.x), cy: y.to(point.y), r: 3, fill: 'currentColor' }))]);
}

function drawPoints(panel, series, { x, y }) {
  const own = drawable(series, panel.log_x);
  const size = own.length > 60 ? 3 : 5;
  return put(seriesGroup(series), {}, own.map((point) => marker(look(series.label).shape, x.to(point.x), y.to(point.y), size)));
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
  return put(seriesGroup(series), {}, drawable(series, panel.log_x).map((point) => {
    const [from, to] = [y.to(0), y.to(point.y)];
    return draw('rect', { x: x.to(point.x) - room / 2 + index * wide + gap / 2, y: Math.min(from, to), width: Math.max(wide - gap, 0.5), height: Math.abs(to - from), fill: 'currentColor' });
  }));
}

function swatch(label, mark) {
  const { colour, dash, shape } = look(label);
  const sample = {
    line: () => draw('line', { x1: 1, x2: 23, y1: 6, y2: 6, stroke: 'currentColor', 'stroke-width': 2.4, 'stroke-dasharray': dash || null }),
    points: () => marker(shape, 6, 6, 4.5),
    bar: () => draw('rect', { x: 1, y: 1, width: 10, height: 10, rx: 1, fill: 'currentColor' }),
  }[mark];
  return styled(draw('svg', { class: 'swatch', width: mark === 'line' ? 24 : 12, height: 12, 'aria-hidden': 'true' }, sample()), { color: colour });
}
