// Moves and scales the drawing of an object graph by pointer, wheel and keys.
(() => {
  const view = document.getElementById('view');
  const picture = view.querySelector('svg');
  const size = picture.viewBox.baseVal;
  let x = 0;
  let y = 0;
  let scale = 1;
  let held = null;
  const draw = () => {
    picture.style.transform = `translate(${x}px,${y}px) scale(${scale})`;
  };
  const fit = () => {
    scale = Math.min(1, view.clientWidth / size.width, view.clientHeight / size.height);
    x = Math.max(0, (view.clientWidth - size.width * scale) / 2);
    y = 0;
    draw();
  };
  view.onpointerdown = (event) => {
    held = [event.clientX - x, event.clientY - y];
    view.setPointerCapture(event.pointerId);
  };
  view.onpointermove = (event) => {
    if (!held) return;
    x = event.clientX - held[0];
    y = event.clientY - held[1];
    draw();
  };
  view.onpointerup = view.onpointercancel = () => {
    held = null;
  };
  view.ondblclick = fit;
  // The point (a, b) of the view stays where it is.
  const enlarge = (factor, a, b) => {
    x = a - (a - x) * factor;
    y = b - (b - y) * factor;
    scale *= factor;
    draw();
  };
  view.addEventListener(
    'wheel',
    (event) => {
      event.preventDefault();
      const around = view.getBoundingClientRect();
      enlarge(event.deltaY < 0 ? 1.1 : 1 / 1.1, event.clientX - around.left, event.clientY - around.top);
    },
    { passive: false },
  );
  const move = (right, down) => {
    x -= right * view.clientWidth * 0.1;
    y -= down * view.clientHeight * 0.1;
    draw();
  };
  const enlargeMiddle = (factor) => enlarge(factor, view.clientWidth / 2, view.clientHeight / 2);
  const keys = {
    ArrowLeft: () => move(-1, 0),
    ArrowRight: () => move(1, 0),
    ArrowUp: () => move(0, -1),
    ArrowDown: () => move(0, 1),
    '+': () => enlargeMiddle(1.25),
    '=': () => enlargeMiddle(1.25),
    '-': () => enlargeMiddle(1 / 1.25),
    0: fit,
  };
  document.addEventListener('keydown', (event) => {
    const wanted = event.ctrlKey || event.metaKey || event.altKey ? undefined : keys[event.key];
    if (!wanted) return;
    event.preventDefault();
    wanted();
  });
  fit();
  document.documentElement.dataset.ready = 'true';
})();
