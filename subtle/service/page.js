// One script for the parts of the page; each part calls one of the functions with what Gradio gives it.

const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
const placeOf = (node) => Number(node.closest('[data-place]').dataset.place);
const messages = new Map(); // of addresses that give no video

// A video that cannot be shown says why: the server's answer is a line of text.
function explain(element) {
  const show = (video) => {
    const said = messages.get(video.getAttribute('src'));
    const place = video.parentElement.querySelector('.trouble');
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
      const top = element.getBoundingClientRect().top;
      if (top > innerHeight * 0.7) element.scrollIntoView({ behavior: calm ? 'auto' : 'smooth' });
    }
    all('video').forEach((video) => { video.muted = true; inView.observe(video); });
    count();
  };

  element.addEventListener('change', count);
  element.addEventListener('click', (event) => {
    const button = event.target.closest('button');
    if (!button) return;
    const what = button.dataset.do;
    if (what === 'together') {
      all('video').forEach((video) => { video.currentTime = 0; video.play().catch(() => {}); });
    } else if (what === 'all' || what === 'chosen') {
      trigger('export', { search: search(), places: what === 'all' ? null : chosen() });
    } else {
      const value = button.getAttribute('aria-pressed') === 'true' ? null : what === 'right';
      trigger('mark', { search: search(), place: placeOf(button), is_right: value });
    }
  });
  watch('value', setup);
  setup();
}
