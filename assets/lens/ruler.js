// The byte ruler: one horizontal scale, in bytes, that every row of the inspector shares.

/** A stretch of bytes that wants to be at least `need` pixels wide. @typedef {{start: number, end: number, need: number}} Span */

const WIDE = 1400;
const BYTE = 9;

/**
 * Places bytes on a line. Bytes are as wide as a letter; where a token needs more room for its label, all of its bytes
 * grow alike, in every row.
 */
export class Ruler {
  /**
   * @param {number} from first byte @param {number} to one behind the last byte
   * @param {Span[]} spans @param {number} [slot] pixels behind the last byte for tokens without bytes
   */
  constructor(from, to, spans, slot = 0) {
    this.from = from;
    this.to = to;
    this.slot = slot;
    const count = to - from;
    const widths = new Float64Array(count).fill(Math.min(BYTE, WIDE / Math.max(1, count)));
    for (const span of [...spans].sort((a, b) => a.end - a.start - (b.end - b.start))) stretch(widths, span, from);
    this.edges = new Float64Array(count + 1);
    for (let i = 0; i < count; i += 1) this.edges[i + 1] = this.edges[i] + widths[i];
  }

  /** Pixel of a byte offset; offsets outside the ruler stick to its ends. @param {number} offset */
  x(offset) {
    return this.edges[Math.min(Math.max(offset - this.from, 0), this.to - this.from)];
  }

  /** Pixels of all bytes and the slot behind them. */
  get width() {
    return this.edges[this.to - this.from] + this.slot;
  }

  /** Left pixel and width of a token; one without bytes takes the slot at the end, or a sliver elsewhere. @param {number} start @param {number} end */
  box(start, end) {
    const x = this.x(start);
    if (end > start) return { x, width: this.x(end) - x };
    return { x, width: start >= this.to && this.slot > 0 ? this.slot : 10 };
  }
}

/** @param {Float64Array} widths @param {Span} span @param {number} from */
function stretch(widths, span, from) {
  const first = Math.max(0, span.start - from);
  const last = Math.min(widths.length, span.end - from);
  if (last <= first) return;
  let have = 0;
  for (let i = first; i < last; i += 1) have += widths[i];
  const each = (span.need - have) / (last - first);
  if (each > 0) for (let i = first; i < last; i += 1) widths[i] += each;
}
