// The fold of trace events into what the page shows: tokens, windows, states, counts.
// It only ever appends: a prefix of a trace is a valid trace, live view and replay take the same path.

import { fromHex } from "./text.js";

/**
 * @import { Check, Commit, CommitToken, Draft, End, Fate, Fusion, ModelInfo, Phase, Start, State, Tok, TraceEvent, Verify, Win }
 *   from "./types.d.ts"
 */

const EVERY_TOKEN = ["unite", "gac"];
const ASKED = ["ensemble", "unanimous", "majority"];
/** @type {{[verdict: string]: State|undefined}} */
const ACCEPTED = { unanimous: "agree", majority: "majority", oov: "oov", gated: "gated", unaligned: "unaligned" };

/** One run of one method, folded from its events. */
export class Run {
  /** @param {string} key which pane it belongs to @param {string} title what a person calls it, "" for the method's name */
  constructor(key, title = "") {
    this.key = key;
    this.title = title;
    /** @type {Start|null} */
    this.start = null;
    /** @type {End|null} */
    this.end = null;
    /** @type {Win[]} */
    this.windows = [];
    /** @type {Map<number, Win>} */
    this.byNumber = new Map();
    /** @type {Tok[]} */
    this.tokens = [];
    this.buffer = new Uint8Array(256);
    this.length = 0;
    /** Places of OOV-like tokens, ascending, for jumps. @type {number[]} */
    this.oov = [];
    /** Places of replacements, likewise. @type {number[]} */
    this.replaced = [];
    /** First step at which an OOV-like prefix was read and the drafter's token was then replaced; -1 while there is none. */
    this.broke = -1;
    /** @type {Record<State|"broken", number>} */
    this.counts = { agree: 0, majority: 0, oov: 0, kept: 0, replaced: 0, gated: 0, unaligned: 0, unchecked: 0, plain: 0, broken: 0 };
    this.fusions = 0;
    this.replacements = 0;
    this.edges = 0;
    this.drafted = 0;
    this.stood = 0;
    /** @type {Record<Phase, number>} */
    this.ms = { draft: 0, retokenize: 0, verify: 0, ensemble: 0 };
  }

  /** Whether the method fuses wherever it stands, safe or not. */
  get everyToken() {
    return this.start !== null && EVERY_TOKEN.includes(this.start.method);
  }

  /** @returns {ModelInfo[]} drafter first */
  get models() {
    return this.start === null ? [] : this.start.models;
  }

  /** The response so far. A view, not a copy. */
  get bytes() {
    return this.buffer.subarray(0, this.length);
  }

  /** @param {TraceEvent} event */
  push(event) {
    switch (event.event) {
      case "start":
        this.start = event;
        break;
      case "draft":
        this.#draft(event);
        break;
      case "retokenize":
        this.#window(event.window).readings = event.readings;
        this.#spend(event, "retokenize");
        break;
      case "verify":
        this.#verify(event);
        break;
      case "ensemble":
        this.#window(event.window).fusions[event.index] = event;
        this.fusions += 1;
        if (event.replaced) this.replacements += 1;
        this.#spend(event, "ensemble");
        break;
      case "commit":
        this.#commit(event);
        break;
      case "end":
        this.end = event;
        break;
    }
  }

  /** @param {number} number @returns {Win} */
  #window(number) {
    let window = this.byNumber.get(number);
    if (window === undefined) {
      window = {
        number, at: this.windows.length, start: this.length, carried: 0, draft: [], readings: [], checks: [], fusions: [],
        first: this.tokens.length, last: this.tokens.length, passedOn: 0,
        ms: { draft: 0, retokenize: 0, verify: 0, ensemble: 0 },
      };
      this.windows.push(window);
      this.byNumber.set(number, window);
    }
    return window;
  }

  /** @param {{window: number, ms: number}} event @param {Phase} phase */
  #spend(event, phase) {
    this.ms[phase] += event.ms;
    this.#window(event.window).ms[phase] += event.ms;
  }

  /** @param {Draft} event */
  #draft(event) {
    const window = this.#window(event.window);
    window.start = event.start;
    window.draft = event.tokens;
    window.carried = event.carried ?? 0;
    if (window.at > 0) this.windows[window.at - 1].passedOn = window.carried;
    this.drafted += event.tokens.length - window.carried;
    this.#spend(event, "draft");
  }

  /** @param {Verify} event */
  #verify(event) {
    const window = this.#window(event.window);
    for (const check of event.checks) window.checks[check.index] = check;
    this.#spend(event, "verify");
  }

  /** @param {Commit} event */
  #commit(event) {
    const window = this.#window(event.window);
    if (window.first === window.last) window.first = this.tokens.length;
    let next = 0;
    let point = -1;
    let piece = 0;
    for (const token of event.tokens) {
      const fused = token.source === "ensemble";
      if (!fused || window.fusions[next] !== undefined || point < 0) {
        point = next++;
        piece = 0;
      } else {
        piece += 1;
      }
      this.#append(window, token, point, piece, fused);
    }
    window.last = this.tokens.length;
  }

  /** @param {Win} window @param {CommitToken} token @param {number} index @param {number} piece @param {boolean} fused */
  #append(window, token, index, piece, fused) {
    const check = window.checks[index];
    const fusion = fused ? window.fusions[index] : undefined;
    const bytes = fromHex(token.hex);
    const state = this.#stateOf(check, fusion, fused);
    const broken = check !== undefined && check.oov_for.length > 0 && ASKED.includes(check.verdict);
    const i = this.tokens.length;
    this.tokens.push({
      i, id: token.id, hex: token.hex, bytes, start: token.start, end: token.start + bytes.length,
      eos: token.eos ?? false, control: token.control ?? false, fused, window: window.at, index, piece, state, broken,
    });
    this.#grow(bytes);
    this.counts[state] += 1;
    if (broken) this.counts.broken += 1;
    if (piece === 0 && (state === "oov" || broken)) this.oov.push(i);
    if (piece === 0 && state === "replaced") this.replaced.push(i);
    if (broken && state === "replaced" && this.broke < 0) this.broke = i;
    if (piece === 0 && check !== undefined && check.edge) this.edges += 1;
    if (piece === 0 && state !== "replaced") this.stood += 1;
  }

  /** @param {Check|undefined} check @param {Fusion|undefined} fusion @param {boolean} fused @returns {State} */
  #stateOf(check, fusion, fused) {
    if (fused) return fusion !== undefined && fusion.replaced ? "replaced" : "kept";
    if (check === undefined) return this.start !== null && this.start.method === "single" ? "plain" : "unchecked";
    return ACCEPTED[check.verdict] ?? "unchecked";
  }

  /** @param {Uint8Array} bytes */
  #grow(bytes) {
    if (this.length + bytes.length > this.buffer.length) {
      const larger = new Uint8Array(2 * (this.length + bytes.length));
      larger.set(this.bytes);
      this.buffer = larger;
    }
    this.buffer.set(bytes, this.length);
    this.length += bytes.length;
  }

  /** Numbers of the run so far, all from its events (see `STATS` in sentences.js for what each means). */
  stats() {
    const tokens = this.tokens.length;
    const phasesMs = this.ms.draft + this.ms.retokenize + this.ms.verify + this.ms.ensemble;
    const elapsedMs = this.end?.ms || phasesMs;
    return {
      tokens,
      windows: this.windows.length,
      fusions: this.fusions,
      fusedShare: tokens === 0 ? null : this.fusions / tokens,
      replaced: this.replacements,
      oov: this.oov.length,
      discarded: this.drafted - this.stood,
      edges: this.edges,
      tokensPerSecond: elapsedMs > 0 ? (1000 * tokens) / elapsedMs : null,
    };
  }

  /** The token that covers a byte offset; the last one for the end of the text. -1 when there is none. @param {number} offset */
  tokenAtByte(offset) {
    let low = 0;
    let high = this.tokens.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.tokens[middle].end > offset) high = middle;
      else low = middle + 1;
    }
    return high;
  }

  /**
   * What became of a drafted token: it stands, waits for its cycle's end, went on to the next cycle, or is gone.
   * @param {Win} window @param {number} index @returns {Fate}
   */
  fate(window, index) {
    if (this.tokenAtPosition(window, index) >= 0) return "stands";
    if (window.last === window.first) return "waits";
    return index >= window.draft.length - window.passedOn ? "passed on" : "gone";
  }

  /** The committed token that stands for a draft position of a window; -1 when it was discarded. @param {Win} window @param {number} index */
  tokenAtPosition(window, index) {
    for (let i = window.first; i < window.last; i += 1) if (this.tokens[i].index === index) return i;
    return -1;
  }
}

/**
 * First place in an ascending list above `from` (or below it, for `step` -1); -1 when there is none.
 * @param {number[]} list @param {number} from @param {1|-1} step
 */
export function nextIn(list, from, step) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] > from || (step < 0 && list[middle] === from)) high = middle;
    else low = middle + 1;
  }
  const place = step > 0 ? low : low - 1;
  return place >= 0 && place < list.length ? list[place] : -1;
}

/** The first byte at which two responses differ, found without reading twice what was already compared. */
export class Divergence {
  /** @param {Run} left @param {Run} right */
  constructor(left, right) {
    this.left = left;
    this.right = right;
    this.same = 0;
    /** Byte offset of the first difference; -1 while there is none. */
    this.at = -1;
  }

  /** Compares what came since the last call. */
  update() {
    if (this.at >= 0) return;
    const [a, b] = [this.left.bytes, this.right.bytes];
    const both = Math.min(a.length, b.length);
    while (this.same < both && a[this.same] === b[this.same]) this.same += 1;
    const shorter = a.length <= b.length ? this.left : this.right;
    if (this.same < both || (a.length !== b.length && shorter.end !== null)) this.at = this.same;
  }
}
