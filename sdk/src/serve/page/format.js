// Numbers as people read them.

const TIMES = [[3.6e12, 'h'], [1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];

/** Three digits that count. */
export const digits = (x) => (x >= 100 ? count(x) : x.toFixed(x >= 10 ? 1 : 2));

/** Nanoseconds: `412 ms`, `1.24 s`. */
export function time(ns) {
  const [size, unit] = TIMES.find(([least]) => ns >= least) ?? TIMES[1];
  return ns ? `${digits(ns / size)} ${unit}` : '0 s';
}

const SIZES = [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']];

/** Bytes: `412 KiB`, `1.24 GiB`. */
export function bytes(n) {
  const [size, unit] = SIZES.find(([least]) => n >= least) ?? [1, 'B'];
  return size > 1 ? `${digits(n / size)} ${unit}` : `${count(n)} B`;
}

const grouped = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
export const count = (n) => grouped.format(n);

export const plural = (n, noun, ending = 's') => `${count(n)} ${noun}${n === 1 ? '' : ending}`;

/** A share of 1: `5.0 %`. */
export const percent = (p) => `${(100 * p).toFixed(1)} %`;

/** Standard error of the share `p` among `n` samples, √(p(1−p)/n), in percent. A lower bound, for samples cluster. */
export const error = (p, n) => (n > 0 ? 100 * Math.sqrt(Math.max(0, p * (1 - p)) / n) : 0).toFixed(1);

export const clock = (ms) => new Date(ms).toLocaleTimeString('en-GB');
