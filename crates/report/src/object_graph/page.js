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
  view.addEventListener(
    'wheel',
    (event) => {
      event.preventDefault();
      const factor = event.deltaY < 0 ? 1.1 : 1 / 1.1;
      const around = view.getBoundingClientRect();
      const [a, b] = [event.clientX - around.left, event.clientY - around.top];
      x = a - (a - x) * factor;
      y = b - (b - y) * factor;
      scale *= factor;
      draw();
    },
    { passive: false },
  );
  fit();
})();
