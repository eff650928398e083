/** The flame graph: a canvas that is drawn when something changed, a tooltip, and the keys that move over frames. */
import { effect, useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { label, shortFile, signed } from '../model/format.ts';
import { changeAt } from '../model/sides.ts';
import { trunkEnd } from '../model/tree.ts';
import { change, isDark, settings } from '../state.ts';
import { contentHeight, nodeAt, paint, type Picture, ROW, rowTop } from './paint.ts';
import type { Session } from './session.ts';
import { move } from './steps.ts';
import { describe, Tooltip } from './Tooltip.tsx';

const ZOOM_MS = 180;
const FONT = '12px ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';

declare global {
  interface Window {
    /** For whoever measures a page: how long each drawing took, and what was drawn. */
    heaptideDrawings?: { ms: number; nDrawn: number }[];
  }
}

export function FlameView({ session }: { session: Session }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const hovered = useSignal(-1);
  const pointer = useSignal<{ x: number; y: number } | null>(null);
  const painter = useMemo(() => new Painter(session), [session]);

  useEffect(() => painter.attach(box.current!, canvas.current!), [painter]);
  useEffect(
    () =>
      effect(() => {
        painter.hovered = hovered.value;
        painter.ask();
      }),
    [painter],
  );

  const at = (event: MouseEvent) => {
    const edges = canvas.current!.getBoundingClientRect();
    return nodeAt(painter.picture(), event.clientX - edges.left, event.clientY - edges.top);
  };
  const onMove = (event: MouseEvent) => {
    hovered.value = at(event);
    pointer.value = hovered.value < 0 ? null : { x: event.clientX, y: event.clientY };
  };
  const onLeave = () => {
    hovered.value = -1;
    pointer.value = null;
  };
  const onClick = (event: MouseEvent) => {
    const node = at(event);
    if (node < 0) return;
    session.select(node);
    session.zoomTo(node === session.zoom.value ? session.tree.value.parent[node]! : node);
    onLeave();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = session.selected.value < 0 ? session.zoom.value : session.selected.value;
    const isFlame = settings.value.orientation === 'flame';
    const next = move(session.tree.value, here, event.key, isFlame, session.selected.value < 0);
    if (next >= 0) {
      session.select(next);
      painter.reveal(next);
      const place = painter.placeOf(next);
      pointer.value = place;
      hovered.value = -1;
    } else if (event.key === 'Enter' || event.key === ' ') {
      session.zoomTo(here === session.zoom.value ? session.tree.value.parent[here]! : here);
      pointer.value = null;
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  const shown = hovered.value >= 0 ? hovered.value : session.selected.value;
  const isEmpty = session.tree.value.total[session.tree.value.unit][0] === 0;
  return (
    <section class="graph" ref={box}>
      <div class="spacer" style={{ height: `${contentHeight(session.tree.value)}px` }} aria-hidden="true" />
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label="Flame graph: arrow keys move over frames, Enter zooms, question mark lists all keys"
        aria-describedby="spoken"
        onMouseMove={onMove}
        onMouseLeave={onLeave}
        onClick={onClick}
        onKeyDown={onKey}
        onBlur={() => (pointer.value = null)}
      />
      {isEmpty && <p class="nothing">{emptyReason(session.tree.value.sides !== undefined)}</p>}
      <p id="spoken" class="spoken" aria-live="polite">
        {session.selected.value >= 0 ? describe(session, session.selected.value) : ''}
      </p>
      {pointer.value && shown >= 0 && <Tooltip session={session} node={shown} x={pointer.value.x} y={pointer.value.y} />}
    </section>
  );
}

function emptyReason(isDiff: boolean): string {
  const { measure, thread, process } = settings.value;
  if (isDiff) return 'Nothing changed.';
  if (settings.value.from >= 0) return 'Nothing of this interval is left to show.';
  const where = thread >= 0 ? ' by this thread' : process >= 0 ? ' by this process' : '';
  if (measure === 'leaked') return `Nothing allocated${where} was alive at the end.`;
  if (measure === 'peak') return `Nothing allocated${where} was alive at the peak.`;
  return `Nothing was allocated${where}.`;
}

/** Draws at most once a frame of the screen, and moves from one zoom to the next. */
class Painter {
  hovered = -1;
  private box: HTMLDivElement | undefined;
  private canvas: HTMLCanvasElement | undefined;
  private asked = 0;
  private from = 0;
  private to = 1;
  private move: { from: number; to: number; start: number } | undefined;
  private known: { tree: unknown; zoom: number; isFlame: boolean } | undefined;

  constructor(private readonly session: Session) {}

  attach(box: HTMLDivElement, canvas: HTMLCanvasElement): () => void {
    this.box = box;
    this.canvas = canvas;
    const resized = new ResizeObserver(() => this.ask());
    resized.observe(box);
    const onScroll = () => this.ask();
    box.addEventListener('scroll', onScroll, { passive: true });
    const stop = effect(() => {
      // Whatever is read here is what a drawing depends on.
      void [this.session.tree.value, this.session.found.value, this.session.zoom.value, this.session.selected.value];
      void [isDark.value, settings.value.orientation];
      this.ask();
    });
    return () => {
      stop();
      resized.disconnect();
      box.removeEventListener('scroll', onScroll);
      cancelAnimationFrame(this.asked);
    };
  }

  ask(): void {
    if (!this.asked) this.asked = requestAnimationFrame((now) => this.draw(now));
  }

  picture(): Picture {
    const { session } = this;
    const { orientation, merge } = settings.value;
    const tree = session.tree.value;
    return {
      tree,
      colouring: session.colours.value,
      isDark: isDark.value,
      from: this.from,
      to: this.to,
      width: this.box?.clientWidth ?? 1,
      height: this.box?.clientHeight ?? 1,
      scroll: this.box?.scrollTop ?? 0,
      isFlame: orientation === 'flame',
      found: session.found.value,
      zoom: session.zoom.value,
      selected: session.selected.value,
      hovered: this.hovered,
      font: FONT,
      label: (node) => {
        const { name, place } = label(session.data, tree, node, merge === 'line');
        if (tree.sides) {
          // Not by colour alone: those who cannot tell red from green see the sign.
          const { change } = changeAt(tree, node);
          return { name: name === '<module>' ? shortFile(place) : name, place: change === 0 ? '' : signed(change, tree.unit) };
        }
        // Every module's top level has the same name: its file says more.
        return name === '<module>' ? { name: shortFile(place), place: name } : { name, place: shortFile(place) };
      },
    };
  }

  /** Scrolls so that a node's row can be seen. */
  reveal(node: number): void {
    const picture = this.picture();
    const top = rowTop(picture, picture.tree.depth[node]!);
    if (top < 0) this.box!.scrollTop += top - ROW;
    else if (top + ROW > picture.height) this.box!.scrollTop += top + 2 * ROW - picture.height;
    const { tree } = picture;
    const end = tree.start[node]! + tree.total[tree.unit][node]!;
    // A frame beside what is zoomed to: zoom out until both fit.
    if (tree.start[node]! < this.from || end > this.to) {
      let around = this.session.zoom.value;
      const reaches = (at: number) => tree.start[at]! <= tree.start[node]! && tree.start[at]! + tree.total[tree.unit][at]! >= end;
      while (around !== 0 && !reaches(around)) around = tree.parent[around]!;
      if (around !== this.session.zoom.value && tree.depth[node]! >= tree.depth[around]!) this.session.zoomTo(around);
    }
  }

  /** Where a node's tooltip belongs in the window. */
  placeOf(node: number): { x: number; y: number } {
    const picture = this.picture();
    const { tree, from, to, width } = picture;
    const edges = this.canvas!.getBoundingClientRect();
    const scale = width / (to - from);
    const left = Math.max(0, (tree.start[node]! - from) * scale);
    return { x: edges.left + Math.min(left + 12, width - 20), y: edges.top + rowTop(picture, tree.depth[node]!) + ROW };
  }

  private draw(now: number): void {
    this.asked = 0;
    const { box, canvas } = this;
    if (!box || !canvas) return;
    this.follow(now);
    const started = performance.now();
    const width = box.clientWidth;
    const height = box.clientHeight;
    const density = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * density) || canvas.height !== Math.round(height * density)) {
      canvas.width = Math.round(width * density);
      canvas.height = Math.round(height * density);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext('2d')!;
    context.setTransform(density, 0, 0, density, 0, 0);
    const nDrawn = paint(context, this.picture());
    window.heaptideDrawings?.push({ ms: performance.now() - started, nDrawn });
    if (this.move) this.ask();
  }

  /** Moves the visible part towards what is zoomed to. */
  private follow(now: number): void {
    const tree = this.session.tree.value;
    const zoom = this.session.zoom.value;
    const isFlame = settings.value.orientation === 'flame';
    const size = tree.total[tree.unit];
    const goalFrom = tree.start[zoom]!;
    const goalTo = goalFrom + (size[zoom]! || 1);
    const isNewTree = this.known?.tree !== tree || this.known.isFlame !== isFlame;
    if (isNewTree || this.known!.zoom !== zoom) {
      const isCalm = matchMedia('(prefers-reduced-motion: reduce)').matches;
      this.move = isNewTree || isCalm ? undefined : { from: this.from, to: this.to, start: now };
      this.known = { tree, zoom, isFlame };
      if (isNewTree) this.box!.scrollTop = isFlame ? contentHeight(tree) : 0;
      // What launched the program, a notebook's kernel or a worker's loop, may fill the screen as well.
      this.showRow(tree.depth[isNewTree && zoom === 0 ? trunkEnd(tree) : zoom]!);
    }
    const done = this.move ? Math.min(1, (now - this.move.start) / ZOOM_MS) : 1;
    const eased = 1 - (1 - done) ** 3;
    if (this.move && done < 1) {
      this.from = this.move.from + (goalFrom - this.move.from) * eased;
      this.to = this.move.to + (goalTo - this.move.to) * eased;
    } else {
      this.move = undefined;
      this.from = goalFrom;
      this.to = goalTo;
    }
  }

  /** Callers of what is zoomed to may fill the screen: then it would be out of sight. */
  private showRow(depth: number): void {
    const picture = this.picture();
    const top = rowTop(picture, depth);
    if (top < 0 || top + 4 * ROW > picture.height) {
      const wanted = picture.isFlame ? picture.height - 4 * ROW : 3 * ROW;
      this.box!.scrollTop += top - wanted;
    }
  }
}

export function resetZoom(): void {
  change({ zoom: [] });
}
