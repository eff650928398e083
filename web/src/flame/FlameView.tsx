/** The flame graph: a canvas, a tooltip, and keys that move between frames. */
import { effect, useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { bytes, label, plural, shortFile, signed } from '../model/format.ts';
import { changeAt } from '../model/sides.ts';
import { ROOT, type Tree, trunkEnd } from '../model/tree.ts';
import { change, isDark, isPrinting, settings } from '../state.ts';
import { contentHeight, nodeAt, paint, type Picture, ROW, rowTop } from './paint.ts';
import type { GraphState } from './graph-state.ts';
import { move } from './steps.ts';
import { describe, Tooltip } from './Tooltip.tsx';

const ZOOM_MS = 180;
const FONT = '12px ui-sans-serif, system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';

declare global {
  interface Window {
    /** For performance tests: duration of each drawing and number of frames drawn. */
    heaptideDrawings?: { ms: number; nDrawn: number }[];
  }
}

export function FlameView({ graph }: { graph: GraphState }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const hovered = useSignal(-1);
  const pointer = useSignal<{ x: number; y: number } | null>(null);
  const painter = useMemo(() => new Painter(graph), [graph]);

  useEffect(() => painter.attach(box.current!, canvas.current!), [painter]);
  useEffect(
    () =>
      effect(() => {
        painter.hovered = hovered.value;
        painter.schedule();
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
    graph.select(node);
    graph.zoomTo(node === graph.zoom.value ? graph.tree.value.parent[node]! : node);
    onLeave();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const here = graph.selected.value < 0 ? graph.zoom.value : graph.selected.value;
    const isFlame = settings.value.orientation === 'flame';
    const next = move(graph.tree.value, here, event.key, isFlame, graph.selected.value < 0);
    if (next >= 0) {
      graph.select(next);
      painter.reveal(next);
      const position = painter.tooltipPosition(next);
      pointer.value = position;
      hovered.value = -1;
    } else if (event.key === 'Enter' || event.key === ' ') {
      graph.zoomTo(here === graph.zoom.value ? graph.tree.value.parent[here]! : here);
      pointer.value = null;
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  };

  const shown = hovered.value >= 0 ? hovered.value : graph.selected.value;
  const isEmpty = graph.tree.value.total[graph.tree.value.unit][0] === 0;
  return (
    <section class="graph" ref={box} style={{ '--rows-height': `${contentHeight(graph.tree.value) + ROW}px` }}>
      <div class="spacer" style={{ height: `${scrolledHeight(graph.tree.value)}px` }} aria-hidden="true" />
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
      {isEmpty && <p class="nothing">{emptyReason(graph.tree.value.sides !== undefined)}</p>}
      <p id="spoken" class="spoken" aria-live="polite">
        {graph.selected.value >= 0 ? describe(graph, graph.selected.value) : ''}
      </p>
      {pointer.value && shown >= 0 && <Tooltip graph={graph} node={shown} x={pointer.value.x} y={pointer.value.y} />}
    </section>
  );
}

function emptyReason(isDiff: boolean): string {
  const { measure, thread, process } = settings.value;
  if (isDiff) return 'Nothing changed.';
  if (settings.value.from >= 0) return 'Nothing to show in this interval.';
  const where = thread >= 0 ? ' by this thread' : process >= 0 ? ' by this process' : '';
  if (measure === 'leaked') return `Nothing allocated${where} was live at the end.`;
  if (measure === 'peak') return `Nothing allocated${where} was live at the peak.`;
  return `Nothing was allocated${where}.`;
}

/** Draws at most once per animation frame, and animates zooming. */
class Painter {
  hovered = -1;
  private box: HTMLDivElement | undefined;
  private canvas: HTMLCanvasElement | undefined;
  private scheduled = 0;
  private from = 0;
  private to = 1;
  private move: { from: number; to: number; start: number } | undefined;
  private known: { tree: unknown; zoom: number; isFlame: boolean } | undefined;

  constructor(private readonly graph: GraphState) {}

  attach(box: HTMLDivElement, canvas: HTMLCanvasElement): () => void {
    this.box = box;
    this.canvas = canvas;
    const resized = new ResizeObserver(() => this.schedule());
    resized.observe(box);
    const onScroll = () => this.schedule();
    box.addEventListener('scroll', onScroll, { passive: true });
    const stop = effect(() => {
      // Reading a signal here makes a drawing depend on it.
      void [this.graph.tree.value, this.graph.matches.value, this.graph.zoom.value, this.graph.selected.value];
      void [isDark.value, settings.value.orientation];
      // Printing does not wait for an animation frame.
      if (isPrinting.value) this.draw(performance.now());
      else this.schedule();
    });
    return () => {
      stop();
      resized.disconnect();
      box.removeEventListener('scroll', onScroll);
      cancelAnimationFrame(this.scheduled);
    };
  }

  schedule(): void {
    if (!this.scheduled) this.scheduled = requestAnimationFrame((now) => this.draw(now));
  }

  picture(): Picture {
    const { graph } = this;
    const { orientation, merge } = settings.value;
    const tree = graph.tree.value;
    return {
      tree,
      colouring: graph.colours.value,
      isDark: isDark.value,
      from: this.from,
      to: this.to,
      width: this.box?.clientWidth ?? 1,
      height: isPrinting.value ? contentHeight(tree) : (this.box?.clientHeight ?? 1),
      scroll: isPrinting.value ? 0 : (this.box?.scrollTop ?? 0),
      isFlame: orientation === 'flame',
      matches: graph.matches.value,
      zoom: graph.zoom.value,
      selected: graph.selected.value,
      hovered: this.hovered,
      font: FONT,
      label: (node) => {
        const { name, location } = label(graph.data, tree, node, merge === 'line');
        if (tree.sides) {
          // Not by colour alone: users who cannot distinguish red from green see the sign.
          const { change } = changeAt(tree, node);
          return { name: name === '<module>' ? shortFile(location) : name, location: change === 0 ? '' : signed(change, tree.unit) };
        }
        if (tree.key[node] === ROOT) return { name, location: `${bytes(tree.total.bytes[0]!)} in ${plural(tree.total.count[0]!, 'allocation')}` };
        // All modules have the same name at their top level, so show the file.
        return name === '<module>' ? { name: shortFile(location), location: name } : { name, location: shortFile(location) };
      },
    };
  }

  /** Scrolls the row of a node into view. */
  reveal(node: number): void {
    const picture = this.picture();
    const top = rowTop(picture, picture.tree.depth[node]!);
    if (top < 0) this.box!.scrollTop += top - ROW;
    else if (top + ROW > picture.height) this.box!.scrollTop += top + 2 * ROW - picture.height;
    const { tree } = picture;
    const end = tree.start[node]! + tree.total[tree.unit][node]!;
    // A frame outside the zoomed part: zoom out until both fit.
    if (tree.start[node]! < this.from || end > this.to) {
      let around = this.graph.zoom.value;
      const reaches = (at: number) => tree.start[at]! <= tree.start[node]! && tree.start[at]! + tree.total[tree.unit][at]! >= end;
      while (around !== 0 && !reaches(around)) around = tree.parent[around]!;
      if (around !== this.graph.zoom.value && tree.depth[node]! >= tree.depth[around]!) this.graph.zoomTo(around);
    }
  }

  /** Returns the position of a node's tooltip in the window. */
  tooltipPosition(node: number): { x: number; y: number } {
    const picture = this.picture();
    const { tree, from, to, width } = picture;
    const edges = this.canvas!.getBoundingClientRect();
    const scale = width / (to - from);
    const left = Math.max(0, (tree.start[node]! - from) * scale);
    return { x: edges.left + Math.min(left + 12, width - 20), y: edges.top + rowTop(picture, tree.depth[node]!) + ROW };
  }

  private draw(now: number): void {
    this.scheduled = 0;
    const { box, canvas } = this;
    if (!box || !canvas) return;
    this.follow(now);
    const started = performance.now();
    const width = box.clientWidth;
    const height = this.picture().height;
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
    if (this.move) this.schedule();
  }

  /** Moves the visible part towards the zoomed frame. */
  private follow(now: number): void {
    const tree = this.graph.tree.value;
    const zoom = this.graph.zoom.value;
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
      // Frames that launched the program, such as a notebook's kernel, may also fill the screen.
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

  /** Scrolls to a row if its callers would fill the screen and hide it. Starts with a whole row. */
  private showRow(depth: number): void {
    const picture = this.picture();
    const top = rowTop(picture, depth);
    const nShown = Math.min(4, picture.tree.maxDepth - depth + 1);
    if (top < 0 || top + nShown * ROW > picture.height) {
      const wanted = picture.isFlame ? picture.height - 4 * ROW : 3 * ROW;
      const box = this.box!;
      box.scrollTop += top - wanted;
      if (!picture.isFlame) box.scrollTop -= box.scrollTop % ROW;
    }
  }
}

/** Returns the height of all rows and of an empty row below them. Without it, scrolling by whole rows could cut the last row. */
function scrolledHeight(tree: Tree): number {
  return contentHeight(tree) + (settings.value.orientation === 'flame' ? 0 : ROW);
}

export function resetZoom(): void {
  change({ zoom: [] });
}
