/** The data of the page of a timeline, as `report::timeline::page` writes it. Times are in seconds. */

type Point = [seconds: number, bytes: number];

export interface PlotSeries {
  name: string;
  seconds: number[];
  bytes: number[];
  peak: Point | null;
  /** Growth by the least-squares line; null without one. */
  bytes_per_s: number | null;
  trend: [Point, Point] | null;
}

/** A call of a function. */
export interface Call {
  function: string;
  /** The number of the function, for colours. */
  number: number;
  begin: number;
  end: number;
  /** Number of calls that surround it. */
  level: number;
}

export interface PlotData {
  head: {
    format: number;
    title: string;
    /** What was measured, in words. */
    measured: string;
    from: number;
    to: number;
    peak: Point | null;
    limit: number | null;
    notes: string[];
  };
  /** The first is the sum of the run, or the first of several runs. */
  series: PlotSeries[];
  calls: Call[];
}
