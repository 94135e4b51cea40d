// Figures: panels side by side under one legend. A method turned off is off in every figure of the page.

const hiddenSeries = new Set();
const redraws = [];
const MOST_ROWS = 200;

function figureExhibit(figure) {
  const labels = [...new Set(figure.panels.flatMap((panel) => panel.series.map((one) => one.label)))];
  labels.forEach(look);
  const boxes = figure.panels.map((panel) => make('figure', { class: 'panel' },
    make('figcaption', {},
      panel.title && make('b', {}, panel.title),
      make('span', { class: 'quantity' }, panel.y_label)),
    make('div', { class: 'canvas' })));
  const panels = make('div', { class: `panels ${{ 1: 'one', 2: 'pairs', 4: 'pairs' }[boxes.length] || ''}` }, boxes);
  const legend = figureLegend(figure, labels, panels);
  const redraw = () => {
    const ranges = verticalRanges(figure.panels, hiddenSeries);
    figure.panels.forEach((panel, i) => {
      const canvas = boxes[i].querySelector('.canvas');
      canvas.replaceChildren(drawPanel(panel, ranges[i], hiddenSeries, Math.max(canvas.clientWidth, 200)));
    });
  };
  redraws.push(redraw);
  watchWidth(panels, redraw);
  return [labels.length > 0 && legend, panels, folded('Values of this figure', () => figureValues(figure))];
}

// Text keeps its size when the window changes, so the drawing has to be made anew.
function watchWidth(element, redraw) {
  let width = 0;
  new ResizeObserver(() => {
    if (element.clientWidth === width || !element.clientWidth) return;
    width = element.clientWidth;
    redraw();
  }).observe(element);
}

function figureLegend(figure, labels, panels) {
  const markOf = (label) => figure.panels.find((panel) => panel.series.some((one) => one.label === label)).mark;
  const buttons = labels.map((label) => make('button', {
    type: 'button', class: 'entry', 'aria-pressed': String(!hiddenSeries.has(label)), 'data-series': label,
    onclick: () => toggleSeries(label),
    onpointerenter: () => pickOut(panels, label),
    onpointerleave: () => pickOut(panels, null),
  }, swatch(label, markOf(label)), make('span', {}, label)));
  const all = make('button', { type: 'button', class: 'entry all', hidden: true, onclick: showAllSeries }, 'Show all');
  return make('div', { class: 'legend', role: 'group', 'aria-label': 'Series shown' }, buttons, all);
}

function toggleSeries(label) {
  if (!hiddenSeries.delete(label)) hiddenSeries.add(label);
  showSeries();
}

function showAllSeries(event) {
  const legend = event.target.parentElement;
  hiddenSeries.clear();
  showSeries();
  legend.querySelector('.entry').focus(); // the button itself is gone now
}

function showSeries() {
  for (const button of document.querySelectorAll('.legend [data-series]')) {
    button.setAttribute('aria-pressed', String(!hiddenSeries.has(button.dataset.series)));
  }
  for (const legend of document.querySelectorAll('.legend')) {
    const [all, own] = [legend.querySelector('.all'), [...legend.querySelectorAll('[data-series]')]];
    if (all) all.hidden = !own.some((one) => hiddenSeries.has(one.dataset.series));
  }
  redraws.forEach((redraw) => redraw());
}

function pickOut(panels, label) {
  for (const group of panels.querySelectorAll('.series')) {
    group.classList.toggle('faint', label !== null && !hiddenSeries.has(label) && group.dataset.series !== label);
  }
}

function figureValues(figure) {
  return make('div', { class: 'scroll', tabindex: 0 }, figure.panels.map(panelValues));
}

function panelValues(panel) {
  const all = panel.series.flatMap((one) => points(one, false).map((point) => point.x));
  const places = [...new Set(all)].sort((a, b) => a - b);
  const stride = Math.ceil(places.length / MOST_ROWS) || 1;
  const columns = panel.series.map((one) => new Map(points(one, false).map((point) => [point.x, point.y])));
  const [names, digits] = [new Map(panel.ticks), digitsOf(panel)];
  const rows = places.filter((_, i) => i % stride === 0).map((place) => make('tr', {},
    make('th', { scope: 'row' }, names.get(place) || plain(place)),
    columns.map((column) => make('td', {}, column.has(place) ? fixed(column.get(place), digits) : ''))));
  const labels = [panel.x_label, ...panel.series.map((one) => one.label)];
  const heads = labels.map((label) => make('th', { scope: 'col' }, label));
  const thinned = stride > 1 ? ` (one in ${stride} of ${plural(places.length, 'value')})` : '';
  return make('table', { class: 'plain' },
    make('caption', {}, [panel.title, panel.y_label].filter(Boolean).join(': ') + thinned),
    make('thead', {}, make('tr', {}, heads)),
    make('tbody', {}, rows));
}
