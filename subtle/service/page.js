// One script for the parts of the page; each part calls one of the functions with what Gradio gives it.

const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
const placeOf = (node) => Number(node.closest('[data-place]').dataset.place);
const messages = new Map(); // of addresses that give no video

// A video that cannot be shown says why: the server's answer is a line of text.
function explain(element) {
  const show = (video) => {
    const said = messages.get(video.getAttribute('src'));
    const place = video.closest('li, .trim, .moment').querySelector('.trouble');
    video.hidden = Boolean(said);
    if (place) { place.hidden = !said; place.textContent = said || ''; }
  };
  element.addEventListener('error', async (event) => {
    const address = event.target.tagName === 'VIDEO' && event.target.getAttribute('src');
    if (!address) return;
    const answer = await fetch(address).catch(() => null);
    messages.set(address, answer && !answer.ok ? await answer.text() : 'this browser cannot play the clip');
    if (event.target.getAttribute('src') === address) show(event.target);
  }, true);
  return () => element.querySelectorAll('video').forEach(show);
}

function choices(element, trigger, watch) {
  element.addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (button) trigger('choose', { place: placeOf(button) });
  });
}

// Keys mark a moment: the same as its buttons on the card.
const judge = (place, what) => document.querySelector(`#found li[data-place="${place}"] [data-do=${what}]`)?.click();
const judged = { r: 'right', w: 'wrong' };
const isTyped = (event) => event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea');

function timeline(element, trigger, watch) {
  const refresh = explain(element);
  let begin = 0, finish = 0, start = 0, end = 0, dragged = false;
  const all = (what) => element.querySelectorAll(what);
  const video = () => element.querySelector('video');
  const at = (seconds) => `${100 * clamp((seconds - begin) / (finish - begin || 1), 0, 1)}%`;

  const draw = () => {
    if (!video()) return;
    for (const [name, value] of [['start', start], ['end', end]]) {
      all(`input.${name}`).forEach((input) => {
        if (input !== document.activeElement || input.type === 'range') input.value = value.toFixed(2);
        input.setAttribute('aria-valuetext', `${value.toFixed(2)} seconds`);
      });
    }
    element.querySelector('.before').style.width = at(start);
    element.querySelector('.after').style.left = at(end);
    element.querySelector('.length').textContent = `${(end - start).toFixed(2)} s`;
  };
  const button = () => {
    const play = element.querySelector('[data-do=play]');
    if (play) play.textContent = video().paused ? 'Play' : 'Pause';
  };
  const follow = () => {
    const player = video();
    if (!player) return;
    const inside = player.currentTime + begin;
    if (!dragged && !player.paused && (inside >= end - 0.02 || inside < start - 0.06)) player.currentTime = start - begin;
    element.querySelector('.now').style.left = at(player.currentTime + begin);
    if (!player.paused) requestAnimationFrame(follow);
  };
  const setup = () => {
    refresh();
    const part = element.querySelector('.trim');
    if (!part) return;
    [begin, finish] = [Number(part.dataset.begin), Number(part.dataset.end)];
    start = Number(element.querySelector('input.start').getAttribute('value'));
    end = Number(element.querySelector('input.end').getAttribute('value'));
    video().muted = true;
    video().currentTime = start - begin;
    draw();
    button();
    if (!calm) video().play().catch(() => {});
  };
  const set = (input) => {
    const value = Number(input.value);
    if (!Number.isFinite(value) || input.value === '') return;
    if (input.classList.contains('start')) start = clamp(value, begin, end - 0.1);
    else end = clamp(value, start + 0.1, finish);
    video().currentTime = (input.classList.contains('start') ? start : Math.max(start, end - 0.05)) - begin;
    draw();
  };

  for (const kind of ['play', 'pause']) element.addEventListener(kind, () => { button(); follow(); }, true);
  for (const kind of ['timeupdate', 'ended']) element.addEventListener(kind, follow, true);
  element.addEventListener('ended', () => { video().currentTime = start - begin; video().play().catch(() => {}); }, true);
  element.addEventListener('input', (event) => {
    dragged = event.target.type === 'range';
    if (dragged && !video().paused) { video().pause(); element.dataset.goesOn = 'yes'; }
    set(event.target);
  });
  element.addEventListener('change', (event) => {
    dragged = false;
    set(event.target);
    event.target.value = (event.target.classList.contains('start') ? start : end).toFixed(2);
    trigger('trim', { start, end });
    video().currentTime = start - begin;
    if (element.dataset.goesOn) { delete element.dataset.goesOn; video().play().catch(() => {}); }
  });
  element.addEventListener('click', (event) => {
    if (event.target.closest('[data-do=play]')) video().paused ? video().play().catch(() => {}) : video().pause();
  });
  watch('value', setup);
  setup();
}

function results(element, trigger, watch) {
  const refresh = explain(element);
  const all = (what) => [...element.querySelectorAll(what)];
  const search = () => Number(element.querySelector('.bar').dataset.search);
  const chosen = () => all('input[type=checkbox]:checked').map(placeOf);
  let shown = null;
  const inView = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
    if (!isIntersecting) target.pause();
    else if (!calm) target.play().catch(() => {});
  }), { threshold: 0.25 });

  const count = () => {
    const again = element.querySelector('[data-do=again]');
    if (again) again.disabled = !element.querySelector('[aria-pressed=true]');
    const button = element.querySelector('[data-do=chosen]');
    if (!button) return;
    const number = chosen().length;
    button.disabled = !number;
    button.textContent = number ? `Export chosen (${number})` : 'Export chosen';
  };
  const setup = () => {
    refresh();
    inView.disconnect();
    if (!element.querySelector('.bar')) { shown = null; return; }
    if (shown !== search()) {
      shown = search();
      all('input[type=checkbox]').forEach((box) => { box.checked = false; });
      const line = document.getElementById('said'), { top } = line.getBoundingClientRect();
      if (top < 0 || top > innerHeight * 0.7) line.scrollIntoView({ behavior: calm ? 'auto' : 'smooth' });
    }
    all('video').forEach((video) => { video.muted = true; inView.observe(video); });
    count();
  };

  element.addEventListener('change', count);
  element.addEventListener('keydown', (event) => {
    const cards = all('.cards > li'), at = cards.indexOf(event.target.closest('.cards > li'));
    if (at < 0 || isTyped(event)) return;
    const columns = cards.filter((card) => card.offsetTop === cards[0].offsetTop).length;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (judged[event.key.toLowerCase()]) judge(at, judged[event.key.toLowerCase()]);
    else if (step) { cards[at + step]?.querySelector('button, input').focus(); event.preventDefault(); }
  });
  element.addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (!button) return;
    const what = button.dataset.do;
    if (what === 'together') {
      all('video').forEach((video) => { video.currentTime = 0; video.play().catch(() => {}); });
    } else if (what === 'all' || what === 'chosen') {
      trigger('export', { search: search(), places: what === 'all' ? null : chosen() });
    } else if (what === 'again') {
      trigger('again', { search: search() });
    } else if (what === 'open') {
      trigger('open', { search: search(), place: placeOf(button) });
    } else {
      const value = button.getAttribute('aria-pressed') === 'true' ? null : what === 'right';
      trigger('mark', { search: search(), place: placeOf(button), is_right: value });
    }
  });
  watch('value', setup);
  setup();
}

// The moment that is shown large; its marks are those of its card.
function opened(element, trigger, watch) {
  const dialog = document.createElement('dialog');
  dialog.id = 'large';
  element.closest('main').append(dialog);
  const refresh = explain(dialog);
  const one = (what) => dialog.querySelector(what);
  let place = '', found = ''; // of what was opened; of what is shown, which may be a neighbor

  const mirror = () => dialog.querySelectorAll('[aria-pressed]').forEach((button) => {
    const same = document.querySelector(`#found li[data-place="${found}"] [data-do=${button.dataset.do}]`);
    button.disabled = !same;
    button.setAttribute('aria-pressed', same ? same.getAttribute('aria-pressed') : 'false');
  });
  const show = (button) => {
    dialog.querySelectorAll('[aria-current]').forEach((other) => other.setAttribute('aria-current', other === button));
    const { clip, poster, title, facts } = button.dataset, video = one('video');
    found = button.dataset.found;
    one('h2').textContent = title;
    one('.facts').textContent = facts;
    video.poster = poster;
    video.setAttribute('src', clip);
    for (const part of [video, dialog]) part.setAttribute('aria-label', title);
    video.muted = true;
    if (!calm) video.play().catch(() => {});
    refresh();
    mirror();
  };
  const setup = () => {
    const sent = element.querySelector('.moment');
    if (!sent) return;
    dialog.replaceChildren(sent.cloneNode(true));
    one('.moment').hidden = false;
    place = Number(sent.dataset.place);
    if (!dialog.open) dialog.showModal();
    show(one('[aria-current=true]'));
    one('[data-do=before]').disabled = !card(-1);
    one('[data-do=after]').disabled = !card(1);
    one('[aria-current=true]').focus();
  };
  const card = (step) => document.querySelector(`#found li[data-place="${place + step}"] .open`);
  const doings = { before: () => card(-1)?.click(), after: () => card(1)?.click(), close: () => dialog.close() };

  new MutationObserver(mirror).observe(document.getElementById('found'),
    { subtree: true, childList: true, attributes: true, attributeFilter: ['aria-pressed'] });
  dialog.addEventListener('keydown', (event) => {
    const what = { ArrowLeft: 'before', ArrowRight: 'after' }[event.key] || judged[event.key.toLowerCase()];
    if (!what || isTyped(event)) return;
    event.preventDefault();
    doings[what] ? doings[what]() : judge(found, what);
  }, true);
  dialog.addEventListener('click', (event) => {
    const button = event.target.closest('button'), what = button?.dataset.do;
    if (event.target === dialog) dialog.close();
    else if (what === 'show') show(button);
    else if (doings[what]) doings[what]();
    else if (what) judge(found, what);
  });
  dialog.addEventListener('close', () => {
    one('video')?.pause();
    card(0)?.focus();
  });
  watch('value', setup);
}
