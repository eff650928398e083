/**
 * Draws the visible part of a tree on a canvas. Children are sorted by size, so if one is too narrow to see, so are all
 * after it: they become one strip, and the work is bounded by the size of the screen, not of the tree.
 */
import type { Colouring } from '../colours.ts';
import { palette, shade } from '../colours.ts';
import type { Matches } from '../model/search.ts';
import type { Tree } from '../model/tree.ts';

export const ROW = 22;
const GAP = 1;
const MIN_WIDTH = 1.2;
const MIN_TEXT_WIDTH = 30;
const MIN_LOCATION_WIDTH = 56;
export const N_SHADES = 3;
/** The file of a frame is fainter than its function, and still readable on every colour. */
export const LOCATION_ALPHA = 0.85;

export interface Picture {
  tree: Tree;
  colouring: Colouring;
  isDark: boolean;
  /** First and last visible value. */
  from: number;
  to: number;
  width: number;
  height: number;
  scroll: number;
  isFlame: boolean;
  matches: Matches | undefined;
  /** The zoomed node, whose callers are drawn faintly; 0 without zoom. */
  zoom: number;
  /** The selected node, drawn with an outline; −1 if none. */
  selected: number;
  hovered: number;
  font: string;
  label: (node: number) => { name: string; location: string };
}

/** Top of a row on the canvas. */
export function rowTop(picture: Pick<Picture, 'tree' | 'isFlame' | 'scroll' | 'height'>, depth: number): number {
  const all = contentHeight(picture.tree);
  const y = picture.isFlame ? Math.max(all, picture.height) - (depth + 1) * ROW : depth * ROW;
  return y - picture.scroll;
}

export function contentHeight(tree: Tree): number {
  return (tree.maxDepth + 1) * ROW;
}

/** The node at a point of the canvas, or −1. */
export function nodeAt(picture: Picture, x: number, y: number): number {
  const { tree, from, to, width } = picture;
  const value = from + (x / width) * (to - from);
  const size = tree.total[tree.unit];
  let node = 0;
  if (value < 0 || value >= size[0]!) return -1;
  for (;;) {
    const top = rowTop(picture, tree.depth[node]!);
    if (y >= top && y < top + ROW) return node;
    const at = childAt(tree, node, value);
    if (at < 0) return -1;
    node = at;
  }
}

/** The child that covers a value, or −1. */
function childAt(tree: Tree, node: number, value: number): number {
  const at = firstAfter(tree, node, value);
  if (at >= tree.firstChild[node + 1]!) return -1;
  const child = tree.children[at]!;
  return tree.start[child]! <= value ? child : -1;
}

/** Returns the position in `children` of the first child that ends after a value. */
function firstAfter(tree: Tree, node: number, value: number): number {
  const size = tree.total[tree.unit];
  let low = tree.firstChild[node]!;
  let high = tree.firstChild[node + 1]!;
  while (low < high) {
    const middle = (low + high) >> 1;
    const child = tree.children[middle]!;
    if (tree.start[child]! + size[child]! <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

interface Text {
  node: number;
  x: number;
  y: number;
  width: number;
  isFaint: boolean;
}

/** Draws everything. Returns the number of frames drawn. */
export function paint(context: CanvasRenderingContext2D, picture: Picture): number {
  const { tree, colouring, from, to, width, height, matches, zoom } = picture;
  const colours = palette(picture.isDark);
  context.clearRect(0, 0, width, height);
  const size = tree.total[tree.unit];
  if (size[0] === 0) return 0;
  const scale = width / (to - from);
  // Fill rectangles of one colour in one call.
  const buckets: number[][] = colouring.classes.flatMap(() => Array.from({ length: N_SHADES }, (): number[] => []));
  const matchRectangles: number[] = [];
  const veiled: number[] = [];
  const haze: number[] = [];
  const texts: Text[] = [];
  const zoomDepth = tree.depth[zoom]!;
  let nDrawn = 0;
  const waiting = [0];
  for (let node = waiting.pop(); node !== undefined; node = waiting.pop()) {
    const left = Math.max(0, (tree.start[node]! - from) * scale);
    const right = Math.min(width, (tree.start[node]! + size[node]! - from) * scale);
    const depth = tree.depth[node]!;
    const y = rowTop(picture, depth);
    const isPast = picture.isFlame ? y < -ROW : y > height;
    if (isPast) continue;
    if (y > -ROW && y < height) {
      nDrawn++;
      const key = tree.key[node]!;
      const isMatch = matches !== undefined && matches.isMatch[node] === 1;
      const bucket = isMatch ? matchRectangles : buckets[colouring.classOf(tree, node) * N_SHADES + ((key * 7 + depth) % 3 + 3) % 3]!;
      bucket.push(left, y, Math.max(0.6, right - left - GAP));
      const isFaint = depth < zoomDepth || (matches !== undefined && !isMatch && !matches.isBelow[node]);
      if (isFaint) veiled.push(left, y, Math.max(0.6, right - left - GAP));
      if (right - left >= MIN_TEXT_WIDTH) texts.push({ node, x: left, y, width: right - left, isFaint });
    }
    const end = tree.firstChild[node + 1]!;
    for (let at = firstAfter(tree, node, from); at < end; at++) {
      const child = tree.children[at]!;
      const x = (tree.start[child]! - from) * scale;
      if (x >= width) break;
      // In a comparison, unchanged frames have no width.
      if (size[child] === 0) break;
      if (size[child]! * scale < MIN_WIDTH) {
        const last = tree.children[end - 1]!;
        const stop = Math.min(width, (tree.start[last]! + size[last]! - from) * scale);
        haze.push(Math.max(0, x), rowTop(picture, depth + 1), Math.max(0.6, stop - Math.max(0, x)));
        break;
      }
      waiting.push(child);
    }
  }
  fill(context, colours.haze, haze);
  buckets.forEach((rectangles, at) => {
    if (rectangles.length === 0) return;
    const colourClass = colouring.classes[Math.floor(at / N_SHADES)]!;
    fill(context, shade(colourClass.colour(colours), at % N_SHADES), rectangles);
  });
  fill(context, colours.match, matchRectangles);
  fill(context, colours.veil, veiled);
  context.font = picture.font;
  context.textBaseline = 'middle';
  for (const text of texts) write(context, picture, text, colours);
  outline(context, picture, picture.hovered, colours.edge, 1, scale);
  outline(context, picture, picture.selected, colours.edge, 2, scale);
  return nDrawn;
}

function fill(context: CanvasRenderingContext2D, colour: string, rectangles: number[]): void {
  if (rectangles.length === 0) return;
  context.fillStyle = colour;
  context.beginPath();
  for (let at = 0; at < rectangles.length; at += 3) {
    context.rect(rectangles[at]!, rectangles[at + 1]!, rectangles[at + 2]!, ROW - GAP);
  }
  context.fill();
}

function write(
  context: CanvasRenderingContext2D,
  picture: Picture,
  text: Text,
  colours: { text: string; faintText: string },
): void {
  const { name, location } = picture.label(text.node);
  const room = text.width - 12;
  const middle = text.y + (ROW - GAP) / 2 + 0.5;
  const isMatch = picture.matches?.isMatch[text.node] === 1;
  const { shown, used } = fit(context, picture.font, name, room);
  if (!shown) return;
  context.fillStyle = isMatch ? '#fff' : text.isFaint ? colours.faintText : colours.text;
  context.fillText(shown, text.x + 6, middle);
  if (shown.length < name.length || !location || room - used < MIN_LOCATION_WIDTH) return;
  const rest = fit(context, picture.font, location, room - used - 8).shown;
  context.globalAlpha = LOCATION_ALPHA;
  context.fillText(rest, text.x + 6 + used + 8, middle);
  context.globalAlpha = 1;
}

const widths = new Map<string, Map<string, number>>();

/** Returns the width of a letter. Measuring every text, or reading the canvas font, would take most of the time. */
function letterWidth(context: CanvasRenderingContext2D, known: Map<string, number>, letter: string): number {
  let width = known.get(letter);
  if (width === undefined) known.set(letter, (width = context.measureText(letter).width));
  return width;
}

/** Returns the part of a text that fits, and its width; empty if too little fits to be useful. */
function fit(context: CanvasRenderingContext2D, font: string, text: string, room: number): { shown: string; used: number } {
  let known = widths.get(font);
  if (!known) widths.set(font, (known = new Map()));
  const mark = letterWidth(context, known, '…');
  let used = 0;
  /** Number of letters that leave room for the ellipsis. */
  let n = 0;
  let at = 0;
  for (const letter of text) {
    used += letterWidth(context, known, letter);
    if (used > room) return n < 2 ? { shown: '', used: 0 } : { shown: `${text.slice(0, n)}…`, used: room };
    at += letter.length;
    if (used + mark <= room) n = at;
  }
  return { shown: text, used };
}

function outline(
  context: CanvasRenderingContext2D,
  picture: Picture,
  node: number,
  colour: string,
  thickness: number,
  scale: number,
): void {
  if (node < 0 || node >= picture.tree.n) return;
  const { tree, from, width } = picture;
  const left = Math.max(0, (tree.start[node]! - from) * scale);
  const right = Math.min(width, (tree.start[node]! + tree.total[tree.unit][node]! - from) * scale);
  if (right <= 0 || left >= width) return;
  const y = rowTop(picture, tree.depth[node]!);
  const inset = thickness / 2;
  context.strokeStyle = colour;
  context.lineWidth = thickness;
  context.strokeRect(left + inset, y + inset, Math.max(1, right - left - GAP - thickness), ROW - GAP - thickness);
}
