// Tables: sortable, with group heads, gains, and the paper's numbers below ours.

const ORDERS = ['none', 'ascending', 'descending'];
const MANY_COLUMNS = 8;

function tableExhibit(table) {
  const numbers = table.rows.flatMap((row) => row.numbers).filter(Boolean);
  const dense = table.columns.length > MANY_COLUMNS;
  const spread = numbers.some((one) => isNumber(one.std));
  const body = make('tbody', {}, table.rows.map((row) => tableRow(table, row, spread)));
  const grid = make('table', { class: dense ? 'numbers dense' : 'numbers', 'aria-labelledby': `${table.id}-title` },
    tableHead(table, body), body);
  const shaded = shade(table, body);
  // The box can be focused so that a keyboard can scroll it.
  const box = { class: 'scroll', tabindex: 0, role: 'region', 'aria-labelledby': `${table.id}-title` };
  return [make('div', box, grid), tableKey(numbers, shaded)];
}

// Where several columns stand under one group there are two lines of heads; otherwise one.
function tableHead(table, body) {
  const grouped = table.columns.some((column) => column.group);
  const labels = [table.head, ...table.columns.map((column) => column.label)];
  const heads = labels.map((label, i) => sortable(label, i - 1, table, body));
  groupStarts(table).forEach((start) => heads[start + 1].classList.add('starts'));
  const line = make('tr', {}, heads);
  if (!grouped) return make('thead', {}, line);
  const groups = [];
  for (const { group } of table.columns) {
    const last = groups[groups.length - 1];
    if (last && last.group === group) last.span += 1;
    else groups.push({ group, span: 1 });
  }
  const above = groups.map(({ group, span }) => (group
    ? make('th', { class: 'group', colspan: span, scope: 'colgroup' }, make('span', {}, group))
    : make('td', { colspan: span })));
  return make('thead', {}, make('tr', { class: 'groups' }, make('td', { class: 'corner' }), above), line);
}

function groupStarts(table) {
  return table.columns.flatMap((column, i) => (i > 0 && column.group !== table.columns[i - 1].group ? [i] : []));
}

function sortable(label, index, table, body) {
  const head = make('th', { scope: 'col', 'aria-sort': 'none', class: index < 0 ? 'label' : null },
    make('button', { type: 'button', onclick: () => sortBy(head, index, table, body) },
      make('span', {}, label), make('span', { class: 'arrow', 'aria-hidden': 'true' })));
  return head;
}

// First click ascending, second descending, third back to the order of the report.
function sortBy(head, index, table, body) {
  const order = ORDERS[(ORDERS.indexOf(head.getAttribute('aria-sort')) + 1) % ORDERS.length];
  for (const other of head.parentElement.children) other.setAttribute('aria-sort', 'none');
  head.setAttribute('aria-sort', order);
  const lines = [...body.rows].sort((a, b) => a.dataset.place - b.dataset.place);
  if (order !== 'none') lines.sort((a, b) => compareRows(table, a, b, index, order));
  body.append(...lines);
}

// What has no number stands last, whichever way the rest is sorted.
function compareRows(table, a, b, index, order) {
  const turn = order === 'ascending' ? 1 : -1;
  const [one, other] = [table.rows[a.dataset.place], table.rows[b.dataset.place]];
  if (index < 0) return turn * one.label.localeCompare(other.label, 'en', { numeric: true });
  const [x, y] = [one, other].map((row) => (row.numbers[index] ? row.numbers[index].mean : null));
  if (!isNumber(x) || !isNumber(y)) return Number(!isNumber(x)) - Number(!isNumber(y));
  return turn * (x - y);
}

function tableRow(table, row, spread) {
  const starts = new Set(groupStarts(table));
  const cells = table.columns.map((_, i) => {
    const cell = tableCell(row.numbers[i], table.digits, spread);
    if (starts.has(i)) cell.classList.add('starts');
    return cell;
  });
  const label = make('th', { scope: 'row', class: row.label.length > 28 ? 'long' : null }, row.label);
  return make('tr', { 'data-place': table.rows.indexOf(row) }, label, cells);
}

// `spread` is whether any number of the table has a deviation: one without then keeps its room free, so that the
// decimal points of a column stay below one another.
function tableCell(number, digits, spread) {
  if (!number) return make('td', { class: 'nothing' }, '–');
  const bare = spread && !(isNumber(number.mean) && isNumber(number.std));
  const room = bare ? ` ±${fixed(0, digits)}` : null;
  return make('td', { class: number.best ? 'best' : null },
    make('span', { class: 'own', 'data-room': room }, ownNumber(number, digits), unfinished(number)),
    isNumber(number.gain) && gainLine(number.gain, digits),
    isNumber(number.paper) && paperLine(number, digits));
}

function ownNumber(number, digits) {
  const mean = make(number.best ? 'strong' : 'span', { class: 'mean' }, fixed(number.mean, digits));
  if (!isNumber(number.mean) || !isNumber(number.std)) return mean;
  return [mean, make('span', { class: 'std' }, ` ±${fixed(number.std, digits)}`)];
}

function unfinished(number) {
  if (number.runs >= number.of || !isNumber(number.mean)) return null;
  const said = `Not final: ${number.runs} of ${plural(number.of, 'run')}`;
  return make('abbr', { class: 'unfinished', title: said, role: 'img', 'aria-label': said }, '*');
}

function gainLine(gain, digits) {
  const none = Number(Math.abs(gain).toFixed(digits)) === 0;
  return make('span', { class: none ? 'gain' : gain > 0 ? 'gain up' : 'gain down' }, signed(gain, digits));
}

function paperLine(number, digits) {
  const spread = isNumber(number.paper_std) ? ` ±${fixed(number.paper_std, digits)}` : '';
  const apart = isNumber(number.mean) ? ` (${signed(number.mean - number.paper, digits)})` : '';
  const said = make('span', { class: 'unseen' }, 'paper '); // the eye has the italics
  return make('span', { class: 'paper' }, said, fixed(number.paper, digits) + spread + apart);
}

// A breath of colour from the worst of a column to its best; which end is best, the column's best number tells.
// Returns whether there is any.
function shade(table, body) {
  let any = false;
  table.columns.forEach((_, i) => {
    const own = table.rows.map((row) => row.numbers[i]);
    const range = extent(own.filter((one) => one && isNumber(one.mean)).map((one) => one.mean));
    if (!range || range[0] === range[1]) return;
    any = true;
    const lowIsBest = own.some((one) => one && one.best && one.mean === range[0]);
    [...body.rows].forEach((line, j) => {
      if (!own[j] || !isNumber(own[j].mean)) return;
      const share = (own[j].mean - range[0]) / (range[1] - range[0]);
      styled(line.cells[i + 1], { '--heat': `${(14 * (lowIsBest ? 1 - share : share)).toFixed(1)}%` });
    });
  });
  return any;
}

// What the small print in the cells means; only what occurs.
function tableKey(numbers, shaded) {
  const has = (name) => numbers.some((one) => isNumber(one[name]));
  const [up, down] = [make('span', { class: 'up' }, '+'), make('span', { class: 'down' }, '−')];
  const paper = [make('i', {}, 'Italic'), ' the paper’s number (ours minus it)'];
  const says = [
    numbers.some((one) => one.best) && [make('strong', {}, 'Bold'), ' best of its column'],
    shaded && 'Shade from the worst of a column to its best',
    has('std') && '± standard deviation over seeds',
    has('gain') && [up, '/', down, ' points over the row it builds on'],
    numbers.some(unfinished) && [make('span', { class: 'unfinished' }, '*'), ' not final, runs are missing'],
    has('paper') && make('span', { class: 'paper-key' }, paper),
  ].filter(Boolean);
  return says.length ? make('ul', { class: 'key' }, says.map((one) => make('li', {}, one))) : null;
}
