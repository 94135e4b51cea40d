'use strict';
// What every part of the page uses: making elements, writing numbers, the colours of the methods, the tooltip.

const SVG = 'http://www.w3.org/2000/svg';
const COLOURS = 7;
const DASHES = ['', '7 5', '0.5 4.5', '9 5 0.5 5']; // with round ends a dash of 0.5 is a dot
const SHAPES = ['circle', 'square', 'triangle', 'diamond'];

// Text always goes in as text nodes, so that a label can never become markup.
function put(parent, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) parent.addEventListener(name.slice(2), value);
    else parent.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of [children].flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) parent.append(child);
  }
  return parent;
}

const make = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const draw = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

// Style goes through the object model: the page's policy refuses style attributes.
function styled(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
  return element;
}

const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);

// A true minus sign is as wide as a figure; "-0.0" is no number to print.
function fixed(value, digits) {
  if (!isNumber(value)) return '–';
  const text = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(text) !== 0 ? '−' : '') + text;
}

function signed(value, digits) {
  const text = fixed(value, digits);
  return isNumber(value) && value > 0 && Number(text) !== 0 ? '+' + text : text;
}

// For axes and tooltips, where nobody says how many digits there are.
function plain(value) {
  if (!isNumber(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(1).replace('e+', 'e').replaceAll('-', '−');
  const text = Number(value.toPrecision(size >= 1000 ? 7 : 4)).toLocaleString('en', { maximumFractionDigits: 6 });
  return text.replace('-', '−');
}

const plural = (count, word) => `${count.toLocaleString('en')} ${word}${count === 1 ? '' : 's'}`;

// One look a method for the whole page, given in the order the methods first appear. Colours and dashes go round with
// different periods, so 28 methods differ, and neighbours differ in both.
const looks = new Map();

function look(label) {
  if (!looks.has(label)) {
    if (/^source$/i.test(label.trim())) looks.set(label, { colour: 'var(--source)', dash: '', shape: 'circle' });
    else {
      const turn = [...looks.values()].filter((one) => one.colour !== 'var(--source)').length;
      looks.set(label, {
        colour: `var(--method-${turn % COLOURS})`,
        dash: DASHES[turn % DASHES.length],
        shape: SHAPES[turn % SHAPES.length],
      });
    }
  }
  return looks.get(label);
}

// The tooltip: one for the page, beside the pointer, never outside the window.
const tip = {
  get box() {
    return document.getElementById('ui-tip');
  },
  forget: null,
  // `forget` clears whatever else marks the place, once the tooltip goes or belongs to another place.
  show(x, y, children, forget) {
    const box = this.box;
    if (this.forget && this.forget !== forget) this.forget();
    this.forget = forget;
    box.replaceChildren(...[children].flat(Infinity));
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const [wide, high] = [document.documentElement.clientWidth, window.innerHeight];
    const left = x + 16 + width > wide ? x - 16 - width : x + 16;
    const top = Math.min(Math.max(y - height / 2, 8), high - height - 8);
    styled(box, { left: `${Math.min(Math.max(left, 8), Math.max(wide - width - 8, 8))}px`, top: `${top}px` });
  },
  hide() {
    this.box.hidden = true;
    if (this.forget) this.forget();
    this.forget = null;
  },
};

// Arrow keys, pointer and touch all mean the same: choose a place, at an event or some steps further.
function explore(target, at, step) {
  const leave = () => tip.hide();
  const keys = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
  target.addEventListener('pointermove', at);
  target.addEventListener('pointerdown', at);
  // A finger that leaves has only been lifted: what it chose stays until another place is touched.
  target.addEventListener('pointerleave', (event) => event.pointerType === 'touch' || leave());
  target.addEventListener('blur', leave);
  target.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') leave();
    else if (event.key in keys) {
      event.preventDefault();
      step(keys[event.key]);
    }
  });
}

// The place some steps on; the first step enters at the end it comes from.
function stepped(chosen, by, count) {
  const from = chosen < 0 ? (by === -1 ? count : -1) : chosen;
  return Math.min(Math.max(from + by, 0), count - 1);
}

// The same places as a table, made only when it is asked for: it may be long.
function folded(summary, content) {
  const box = make('details', { class: 'values' }, make('summary', {}, summary));
  box.addEventListener('toggle', () => box.open && box.children.length === 1 && box.append(content()));
  return box;
}
