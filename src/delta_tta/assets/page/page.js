// The page itself: its controls, its list of exhibits, and the exhibits one after the other.

const KINDS = { table: tableExhibit, figure: figureExhibit, strips: stripsExhibit, gallery: galleryExhibit };
const THEME = 'delta-tta-theme';
const WIDE = window.matchMedia('(min-width: 64rem)');

const address = ({ id }) => `#${encodeURIComponent(id)}`;

function exhibit(shown) {
  const heading = `${shown.id}-title`;
  const anchor = make('a', { class: 'anchor', href: address(shown), 'aria-label': `Link to: ${shown.title}` }, '#');
  const section = make('section', { class: 'exhibit', id: shown.id, 'aria-labelledby': heading },
    make('h2', { id: heading }, shown.title, ' ', anchor),
    shown.note && make('p', { class: 'note' }, shown.note));
  // One exhibit that cannot be drawn must not take the others with it.
  try {
    put(section, {}, KINDS[shown.kind](shown));
  } catch (error) {
    section.append(make('p', { class: 'notice' }, 'This exhibit could not be drawn.'));
    console.error(error);
  }
  return section;
}

function contents(exhibits) {
  const lines = exhibits.map((shown) =>
    make('li', {}, make('a', { href: address(shown), 'data-for': shown.id }, shown.title)));
  const box = make('details', { open: WIDE.matches }, make('summary', {}, 'Exhibits'), make('ol', {}, lines));
  WIDE.addEventListener('change', () => { box.open = WIDE.matches; });
  box.addEventListener('click', (event) => { if (event.target.closest('a') && !WIDE.matches) box.open = false; });
  return box;
}

// Mark in the list which exhibit is being read.
function follow(sections) {
  const seen = new Set();
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) seen[entry.isIntersecting ? 'add' : 'delete'](entry.target.id);
    const current = sections.find((section) => seen.has(section.id));
    for (const link of document.querySelectorAll('.contents a')) {
      if (current && link.dataset.for === current.id) link.setAttribute('aria-current', 'true');
      else link.removeAttribute('aria-current');
    }
  }, { rootMargin: '-10% 0px -60% 0px' });
  sections.forEach((section) => watcher.observe(section));
}

// A page opened from disk may be refused its storage: then the choice lasts as long as the page.
function remembered(theme) {
  try {
    if (theme) localStorage.setItem(THEME, theme);
    return localStorage.getItem(THEME);
  } catch {
    return theme || null;
  }
}

function themeButton() {
  const root = document.documentElement;
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  const now = () => root.dataset.theme || (dark.matches ? 'dark' : 'light');
  const button = make('button', { type: 'button', class: 'control', id: 'ui-theme' });
  const say = () => { button.textContent = now() === 'dark' ? 'Light theme' : 'Dark theme'; };
  button.addEventListener('click', () => {
    root.dataset.theme = now() === 'dark' ? 'light' : 'dark';
    remembered(root.dataset.theme);
    say();
  });
  const kept = remembered(null);
  if (kept === 'light' || kept === 'dark') root.dataset.theme = kept;
  dark.addEventListener('change', say);
  say();
  return button;
}

function paperSwitch(exhibits) {
  const numbers = exhibits.flatMap((shown) => (shown.rows || []).flatMap((row) => row.numbers));
  if (!numbers.some((one) => one && isNumber(one.paper))) return null;
  const button = make('button',
    { type: 'button', class: 'control', id: 'ui-paper', role: 'switch', 'aria-checked': 'true' },
    make('span', { class: 'knob', 'aria-hidden': 'true' }), 'Paper’s numbers');
  button.addEventListener('click', () => {
    const on = button.getAttribute('aria-checked') !== 'true';
    button.setAttribute('aria-checked', String(on));
    document.body.classList.toggle('without-paper', !on);
  });
  return button;
}

function facts(about) {
  const known = Object.entries(about || {});
  if (!known.length) return null;
  return make('details', { class: 'about' }, make('summary', {}, 'How this was made'),
    make('dl', {}, known.map(([name, value]) => [make('dt', {}, name), make('dd', {}, value)])));
}

function start() {
  const report = JSON.parse(document.getElementById('ui-data').textContent);
  put(document.getElementById('ui-controls'), {}, [paperSwitch(report.exhibits), themeButton()]);
  put(document.getElementById('ui-about'), {}, facts(report.about));
  const sections = report.exhibits.map(exhibit);
  const nothing = make('p', { class: 'notice' }, 'Nothing to show yet.');
  put(document.getElementById('ui-main'), {}, sections.length ? sections : nothing);
  if (sections.length > 1) put(document.getElementById('ui-contents'), {}, contents(report.exhibits));
  follow(sections);
  window.addEventListener('scroll', () => tip.hide(), { passive: true });
  document.addEventListener('keydown', (event) => event.key === 'Escape' && tip.hide());
  document.addEventListener('pointerdown', (event) => event.target.closest('svg.plot, canvas') || tip.hide());
  // The exhibits were not there yet when the browser looked for the place to jump to.
  const wanted = sections.find((section) => address(section) === location.hash);
  if (wanted) wanted.scrollIntoView();
}

start();
