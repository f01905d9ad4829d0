// Numbers as people read them: times, shares with their error, counts, clocks.

const TIMES = [[3.6e12, 'h'], [6e11, 'min', 6e10], [1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [0, 'ns', 1]];

/** Nanoseconds with three digits: `412 ms`, `1.24 s`. */
export function time(ns) {
  if (!ns) return '0 s';
  const [floor, unit, divisor] = TIMES.find(([least]) => ns >= least);
  return `${digits(ns / (divisor ?? floor))} ${unit}`;
}

/** Three digits that count. */
export function digits(x) {
  return x >= 100 ? Math.round(x).toLocaleString('en-US') : x >= 10 ? x.toFixed(1) : x.toFixed(2);
}

export const count = (n) => Math.round(n).toLocaleString('en-US');

export const samples = (n) => `${count(n)} ${n === 1 ? 'sample' : 'samples'}`;

export const plural = (n, noun) => `${count(n)} ${noun}${n === 1 ? '' : 's'}`;

/** A share of 1 in percent, one decimal. */
export const percent = (p) => `${(100 * p).toFixed(1)} %`;

/** Standard error of the share `p` among `n` samples, in percent: √(p(1−p)/n). A lower bound, for samples cluster. */
export const error = (p, n) => (n > 0 ? 100 * Math.sqrt(Math.max(0, p * (1 - p)) / n) : 0).toFixed(1);

/** `13:05:02` of a time in milliseconds since 1970. */
export const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');

/** CPU time per wall time, in cores. */
export const cores = (ns, wallMs) => (wallMs > 0 ? `${digits(ns / (wallMs * 1e6))} cores` : '');
