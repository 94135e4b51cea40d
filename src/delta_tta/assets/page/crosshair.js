// The crosshair: it reads out every visible series at the place the pointer, finger or arrow keys choose.

function addCrosshair(svg, panel, visible, frame) {
  const { places } = frame.x;
  if (!places.length) return;
  const layer = draw('g', { class: 'crosshair', 'aria-hidden': 'true' });
  svg.append(layer);
  let chosen = -1;
  const forget = () => {
    chosen = -1;
    layer.replaceChildren();
  };
  const choose = (place, clientX, clientY) => {
    chosen = place;
    const read = readings(panel, visible, places[place]);
    const across = frame.x.to(places[place]);
    const dots = read.map(({ series, point }) =>
      styled(dot(frame.x.to(point.x), frame.y.to(point.y), 4), { color: look(series.label).colour }));
    layer.replaceChildren(rule(across, frame.top, across, frame.bottom), ...(panel.mark === 'bar' ? [] : dots));
    tip.show(clientX, clientY, reading(panel, places[place], read), forget);
  };
  const at = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    const [x, y] = [(event.clientX - box.left) / scale, (event.clientY - box.top) / scale];
    const scattered = panel.mark === 'points';
    const place = scattered ? nearestPoint(panel, visible, frame, x, y) : nearestPlace(places.map(frame.x.to), x);
    choose(place, event.clientX, event.clientY);
  };
  const step = (by) => {
    const place = stepped(chosen, by, places.length);
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    choose(place, box.left + frame.x.to(places[place]) * scale, box.top + box.height / 3);
  };
  explore(svg, at, step);
}

function nearestPlace(places, x) {
  let best = 0;
  for (let i = 1; i < places.length; i += 1) if (Math.abs(places[i] - x) < Math.abs(places[best] - x)) best = i;
  return best;
}

// Among scattered points the nearest one counts, not the nearest column of them.
function nearestPoint(panel, visible, frame, x, y) {
  const all = visible.flatMap((one) => drawable(one, panel.log_x));
  const far = (point) => Math.hypot(frame.x.to(point.x) - x, frame.y.to(point.y) - y);
  const best = all.reduce((a, b) => (a && far(a) <= far(b) ? a : b), null);
  return best ? frame.x.places.indexOf(best.x) : 0;
}

// Each series at this place. Lines may be sampled differently: then their nearest value, if the line passes here.
function readings(panel, visible, place) {
  return visible.flatMap((series) => {
    const own = drawable(series, panel.log_x);
    const exact = own.find((point) => point.x === place);
    if (exact) return [{ series, point: exact }];
    if (panel.mark !== 'line' || !own.length || place < own[0].x || place > own[own.length - 1].x) return [];
    return [{ series, point: own[nearestPlace(own.map((point) => point.x), place)] }];
  });
}

function reading(panel, place, read) {
  const named = panel.ticks.find(([value]) => value === place);
  const sorted = panel.mark === 'bar' ? read : [...read].sort((a, b) => b.point.y - a.point.y);
  const digits = digitsOf(panel);
  return [
    make('p', { class: 'where' }, named ? named[1] : `${panel.x_label} ${plain(place)}`),
    make('dl', {}, sorted.map(({ series, point }) => [
      make('dt', {}, swatch(series.label, panel.mark), series.label),
      make('dd', {}, fixed(point.y, digits), point.x !== place && ` at ${plain(point.x)}`),
    ])),
    !read.length && make('p', {}, 'no value'),
  ].filter(Boolean);
}
