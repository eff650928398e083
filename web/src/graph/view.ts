/** A picture that can be moved and zoomed within its box. */

/** Smaller letters are hard to read, so a large picture is not shown as a whole at first. */
const MIN_SCALE = 0.6;
const STEP = 1.25;
const WHEEL_STEP = 1.1;

export class View {
  private readonly picture: SVGSVGElement;
  private readonly rules: string;
  private readonly sheet = new CSSStyleSheet();
  private x = 0;
  private y = 0;
  private scale = 1;
  private held: [number, number] | undefined;
  private readonly listening = new AbortController();

  constructor(
    private readonly box: HTMLElement,
    svg: string,
  ) {
    // The policy of the page allows no style element; the same rules in a sheet also follow the user's choice of theme.
    const [style, rules] = /<style>([^<]*)<\/style>/.exec(svg) ?? ['', ''];
    this.rules = rules ?? '';
    const parsed = new DOMParser().parseFromString(svg.replace(style, ''), 'image/svg+xml').documentElement;
    this.picture = document.importNode(parsed, true) as unknown as SVGSVGElement;
    document.adoptedStyleSheets = [this.sheet];
    this.picture.setAttribute('role', 'img');
    this.picture.setAttribute('aria-label', `Graph of ${this.picture.querySelectorAll('g:not(.arrow) > title').length} objects`);
    box.replaceChildren(this.picture);
    this.listen();
    this.fit(MIN_SCALE);
  }

  colour(isDark: boolean): void {
    this.sheet.replaceSync(this.rules.replace('@media(prefers-color-scheme:dark)', isDark ? '@media all' : '@media not all'));
  }

  stop(): void {
    this.listening.abort();
  }

  /** Handles a key; returns whether it was one of the view's. */
  key(key: string): boolean {
    const { clientWidth, clientHeight } = this.box;
    const middle = [clientWidth / 2, clientHeight / 2] as const;
    const step = [clientWidth * 0.1, clientHeight * 0.1] as const;
    switch (key) {
      case 'ArrowLeft':
        this.move(step[0], 0);
        return true;
      case 'ArrowRight':
        this.move(-step[0], 0);
        return true;
      case 'ArrowUp':
        this.move(0, step[1]);
        return true;
      case 'ArrowDown':
        this.move(0, -step[1]);
        return true;
      case '+':
      case '=':
        this.zoom(STEP, ...middle);
        return true;
      case '-':
        this.zoom(1 / STEP, ...middle);
        return true;
      case '0':
        this.fit(0);
        return true;
      default:
        return false;
    }
  }

  private listen(): void {
    const { box } = this;
    const { signal } = this.listening;
    box.addEventListener(
      'pointerdown',
      (event) => {
        this.held = [event.clientX - this.x, event.clientY - this.y];
        box.setPointerCapture(event.pointerId);
      },
      { signal },
    );
    box.addEventListener(
      'pointermove',
      (event) => {
        if (!this.held) return;
        this.x = event.clientX - this.held[0];
        this.y = event.clientY - this.held[1];
        this.draw();
      },
      { signal },
    );
    for (const end of ['pointerup', 'pointercancel']) box.addEventListener(end, () => (this.held = undefined), { signal });
    box.addEventListener('dblclick', () => this.fit(0), { signal });
    box.addEventListener(
      'wheel',
      (event) => {
        event.preventDefault();
        const around = box.getBoundingClientRect();
        this.zoom(event.deltaY < 0 ? WHEEL_STEP : 1 / WHEEL_STEP, event.clientX - around.left, event.clientY - around.top);
      },
      { passive: false, signal },
    );
  }

  private draw(): void {
    this.picture.style.transform = `translate(${this.x}px,${this.y}px) scale(${this.scale})`;
  }

  private move(right: number, down: number): void {
    this.x += right;
    this.y += down;
    this.draw();
  }

  /** Zooms around the point (x, y) of the box, which does not move. */
  private zoom(factor: number, x: number, y: number): void {
    this.x = x - (x - this.x) * factor;
    this.y = y - (y - this.y) * factor;
    this.scale *= factor;
    this.draw();
  }

  private fit(least: number): void {
    const { width, height } = this.picture.viewBox.baseVal;
    const { clientWidth, clientHeight } = this.box;
    this.scale = Math.max(least, Math.min(1, clientWidth / width, clientHeight / height));
    this.x = Math.max(0, (clientWidth - width * this.scale) / 2);
    this.y = 0;
    this.draw();
  }
}
