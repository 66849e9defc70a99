// Draws one window as SVG: segmentations on the byte ruler, probabilities per position, candidates of a fusion.
// The same nodes are shown and exported.

import { svg } from "./dom.js";
import { Ruler } from "./ruler.js";
import { formatP, listNames, shortName, verdictWord } from "./sentences.js";
import { fromHex, label } from "./text.js";

/** @import { Run } from "./trace-model.js" */
/** @import { Board, CandidateRecord, Check, Fusion, ModelInfo, Reading, Win } from "./types.d.ts" */

/** What can stand in a row of the ruler: tokens of the draft, of a reading, of the response. */
/** @typedef {{hex: string, start: number, eos?: boolean, end?: number, bytes?: Uint8Array}} Boxed */

const ROW = 28;
const GAP = 6;
const LINE = 18;
const COLUMN = 66;
const CHART = 60;
const SLOT = 74;
const LONGEST = 260;
const CONTEXT = 2;
const MONO = 13;

/** @type {CanvasRenderingContext2D|null} */
let pen = null;

/** Width of a label in the figure's font. @param {string} text @param {number} [size] @param {string} [family] */
export function measure(text, size = MONO, family = "monospace") {
  pen ??= document.createElement("canvas").getContext("2d");
  if (pen === null) return 0.6 * size * text.length;
  pen.font = family.startsWith("bold ") ? `bold ${size}px ${family.slice(5)}` : `${size}px ${family}`;
  return pen.measureText(text).width;
}

/** @param {string} text @param {number} width @param {number} [size] @param {string} [family] */
function clip(text, width, size = MONO, family = "monospace") {
  if (measure(text, size, family) <= width) return text;
  const chars = Array.from(text).slice(0, 400);
  while (chars.length > 1 && measure(`${chars.join("")}\u2026`, size, family) > width) chars.pop();
  return `${chars.join("")}\u2026`;
}

const END = "\u23f9 end";

/** @param {Boxed} token */
function tokenLabel(token) {
  return token.eos ? END : label(token.bytes ?? fromHex(token.hex));
}

/** @param {Boxed} token */
function spanOf(token) {
  return { start: token.start, end: token.end ?? token.start + token.hex.length / 2 };
}

/** Two drawings side by side: names that stay in sight, and the body that scrolls. */
class Sheet {
  /** @param {number} labelWidth pixels */
  constructor(labelWidth) {
    this.names = svg("g");
    this.body = svg("g");
    this.labelWidth = labelWidth;
    this.width = 0;
    this.y = 0;
    /** Labels that must stay readable over the ticks. @type {SVGElement[]} */
    this.over = [];
    /** Marks a draft position as the one that is spoken of. @type {(index: number) => void} */
    this.mark = () => {};
  }

  /** @param {string} text @param {number} y @param {string} [cls] @param {string} [full] */
  name(text, y, cls = "f-name", full = text) {
    const node = svg("text", { x: this.labelWidth - 10, y, class: cls, "text-anchor": "end" }, clip(text, this.labelWidth - 30, 12, "sans-serif"));
    if (full !== "") node.append(svg("title", {}, full));
    this.names.append(node);
  }
}

/**
 * Segmentations and checks of a window.
 * @param {Run} run @param {Win} window @param {number} labelWidth
 * @param {(index: number) => void} choose called with the draft position that was pressed
 */
export function windowSheet(run, window, labelWidth, choose) {
  const sheet = new Sheet(labelWidth);
  const ruler = rulerOf(run, window);
  sheet.width = ruler.width + 2;
  const back = svg("g");
  sheet.body.append(back);
  drawAxis(sheet, ruler, window);
  const top = sheet.y;
  const drafts = drawDraft(sheet, ruler, run, window, choose);
  for (const reading of window.readings) drawReading(sheet, ruler, window, reading);
  drawBroken(sheet, ruler, window, top + ROW + GAP);
  drawResponse(sheet, ruler, run, window);
  if (window.checks.some((check) => check !== undefined)) drawChecks(sheet, ruler, run, window);
  const height = sheet.y - top + 4;
  sheet.mark = (index) => {
    drafts.forEach((group, i) => group.classList.toggle("f-selected", i === index));
    back.replaceChildren();
    const drafted = window.draft[index];
    if (drafted === undefined) return;
    const { x, width } = ruler.box(drafted.start, spanOf(drafted).end);
    back.append(svg("rect", { x, y: top - 4, width, height, class: "f-column" }));
  };
  return sheet;
}

/** Where everything of a window lies. @param {Run} run @param {Win} window */
function rulerOf(run, window) {
  const response = run.tokens.slice(window.first, window.last);
  /** @type {Boxed[]} */
  const boxed = [...window.draft, ...window.readings.flatMap((r) => r.tokens), ...response];
  const all = boxed.map((token) => ({ token, ...spanOf(token) }));
  const before = run.tokens[Math.max(0, window.first - CONTEXT)];
  const from = Math.min(window.start, before === undefined || window.first === 0 ? window.start : before.start, ...all.map((span) => span.start));
  const to = Math.max(window.start, ...all.map((span) => span.end));
  for (let i = run.tokenAtByte(from); i >= 0 && i < window.first; i += 1) all.push({ token: run.tokens[i], ...spanOf(run.tokens[i]) });
  const need = (/** @type {{token: Boxed, start: number, end: number}} */ { token, start, end }) => ({ start, end, need: Math.min(LONGEST, measure(tokenLabel(token)) + 14) });
  const columns = window.draft.map(spanOf).map(({ start, end }) => ({ start, end, need: COLUMN }));
  const slot = all.some((span) => span.token.eos) ? SLOT : 0;
  return new Ruler(from, to, [...all.map(need), ...columns], slot);
}

/** @param {Sheet} sheet @param {Ruler} ruler @param {Win} window */
function drawAxis(sheet, ruler, window) {
  sheet.name("byte", 12, "f-dim", "byte offset in the response at which each drafted token starts");
  const offsets = new Set([...window.draft.map((token) => token.start), ruler.to]);
  for (const offset of offsets) {
    const x = ruler.x(offset);
    const last = offset === ruler.to && x > 30;
    sheet.body.append(svg("text", { x: last ? x - 3 : x + 3, y: 12, class: "f-dim", "text-anchor": last ? "end" : "start" }, String(offset)));
    sheet.body.append(svg("line", { x1: x, y1: 3, x2: x, y2: 18, class: "f-tick" }));
  }
  sheet.y = 20;
}

/** One box of a row. @param {Sheet} sheet @param {Ruler} ruler @param {Boxed} token @param {number} y @param {string} cls @param {string} tip */
function box(sheet, ruler, token, y, cls, tip) {
  const { start, end } = spanOf(token);
  const { x, width } = ruler.box(start, end);
  const group = svg("g", { class: `f-token ${cls}` });
  group.append(svg("rect", { x: x + 1, y, width: Math.max(1, width - 2), height: ROW, rx: 3 }));
  const words = svg("text", { x: x + width / 2, y: y + 18, "text-anchor": "middle", class: "f-mono" }, clip(tokenLabel(token), width - 4));
  group.append(words, svg("title", {}, tip));
  sheet.body.append(group);
  return { group, words };
}

/** The boxes of the drafted tokens. @param {Sheet} sheet @param {Ruler} ruler @param {Run} run @param {Win} window @param {(index: number) => void} choose */
function drawDraft(sheet, ruler, run, window, choose) {
  const y = sheet.y;
  const name = run.models.length > 0 ? run.models[0].name : "drafter";
  sheet.name(shortName(name), y + 18, "f-name f-drafter", `${name}, the drafter`);
  for (let i = run.tokenAtByte(ruler.from); i >= 0 && i < window.first; i += 1) {
    const token = run.tokens[i];
    if (token.end > ruler.from && token.start < window.start) box(sheet, ruler, token, y, "f-before", "committed before this window");
  }
  const drafts = window.draft.map((token, index) => {
    const fate = run.fate(window, index);
    const gone = fate === "gone";
    const swapped = window.fusions[index]?.replaced === true;
    const cls = `f-draft${fate === "stands" ? "" : " f-gone"}${swapped ? " f-swapped" : ""}`;
    const tip = `drafted with probability ${token.p}${gone ? "; discarded" : ""}${swapped ? "; replaced" : ""}`;
    const { group } = box(sheet, ruler, token, y, cls, tip);
    if (gone || swapped) {
      const at = ruler.box(token.start, spanOf(token).end);
      group.append(svg("line", { x1: at.x + 5, x2: at.x + at.width - 5, y1: y + ROW / 2, y2: y + ROW / 2, class: "f-strike" }));
    }
    group.setAttribute("role", "button");
    group.setAttribute("tabindex", "0");
    group.setAttribute("aria-label", `drafted token #${index}, ${tokenLabel(token)}, ${tip}`);
    group.addEventListener("click", () => choose(index));
    group.addEventListener("keydown", (event) => {
      if (event.key === "Enter") choose(index);
    });
    return group;
  });
  sheet.y += ROW + GAP;
  return drafts;
}

/** @param {Sheet} sheet @param {Ruler} ruler @param {Win} window @param {Reading} reading */
function drawReading(sheet, ruler, window, reading) {
  const y = sheet.y;
  sheet.name(shortName(reading.model), y + 18, "f-name", `${reading.model}: its own tokens for the same bytes`);
  for (const token of reading.tokens) {
    const { start, end } = spanOf(token);
    const outside = end <= window.start;
    const p = token.p === null ? "" : `; it gave it probability ${token.p}`;
    const { words } = box(sheet, ruler, token, y, outside ? "f-before" : "f-read", `token ${token.id} of ${reading.model}, bytes ${start} to ${end}${p}`);
    words.classList.add("f-over");
    sheet.over.push(words);
  }
  for (const [start, end] of reading.unaligned ?? []) {
    const at = ruler.box(start, end);
    const mark = svg("rect", { x: at.x, y: y + ROW - 3, width: at.width, height: 3, class: "f-unaligned" });
    mark.append(svg("title", {}, `${reading.model}'s tokenizer does not give back bytes ${start} to ${end} as they were`));
    sheet.body.append(mark);
  }
  sheet.y += ROW + GAP;
}

/** A drafter boundary that a verifier lacks: a torn tick through its row, a cross and the names below. @param {Sheet} sheet @param {Ruler} ruler @param {Win} window @param {number} top */
function drawBroken(sheet, ruler, window, top) {
  const bottom = sheet.y - GAP;
  const marks = made(window.checks).filter((check) => check.oov_for.length > 0);
  for (const check of made(window.checks)) {
    if (check.oov_for.length > 0) continue;
    const x = ruler.x(check.start);
    sheet.body.append(svg("line", { x1: x, x2: x, y1: top - GAP, y2: bottom, class: "f-boundary" }));
  }
  if (marks.length === 0) {
    for (const words of sheet.over) sheet.body.append(words);
    return;
  }
  marks.forEach((check, k) => {
    const x = ruler.x(check.start);
    const words = `OOV-like for ${listNames(check.oov_for)}`;
    window.readings.forEach((reading, row) => {
      if (check.oov_for.includes(reading.model)) sheet.body.append(tear(x, top + row * (ROW + GAP)));
    });
    const cross = svg("text", { x, y: sheet.y + 11, class: "f-cross", "text-anchor": "middle" }, "\u2715");
    cross.append(svg("title", {}, words));
    sheet.body.append(cross);
    const end = x + 16 + measure(words, 11, "bold sans-serif");
    const next = marks[k + 1];
    if (next !== undefined && ruler.x(next.start) < end) return;
    sheet.body.append(svg("text", { x: x + 9, y: sheet.y + 11, class: "f-oov" }, words));
    sheet.width = Math.max(sheet.width, end);
  });
  for (const words of sheet.over) sheet.body.append(words);
  sheet.name("no boundary", sheet.y + 11, "f-dim", "drafter boundaries at which a verifier's own reading has none");
  sheet.y += LINE;
}

/** The checks that were made, in the order of the draft. @param {Array<Check|undefined>} checks */
function made(checks) {
  return checks.filter((check) => check !== undefined);
}

/** @param {number} x @param {number} y */
function tear(x, y) {
  const steps = [-4, 4, -4, 4, -4, 4].map((dx, i) => `L${x + dx},${y + 3 + (i * (ROW - 2)) / 5}`).join("");
  return svg("path", { d: `M${x},${y - 2}${steps}L${x},${y + ROW + 3}`, class: "f-tear" });
}

/** @param {Sheet} sheet @param {Ruler} ruler @param {Run} run @param {Win} window */
function drawResponse(sheet, ruler, run, window) {
  if (window.last <= window.first) return;
  const y = sheet.y + 2;
  sheet.name("response", y + 18, "f-name", "what this window added to the response");
  for (let i = window.first; i < window.last; i += 1) {
    const token = run.tokens[i];
    box(sheet, ruler, token, y, `f-out s-${token.eos && token.state === "plain" ? "plain" : token.state}${token.broken ? " s-broken" : ""}`, `token #${i} of the response`);
  }
  sheet.y = y + ROW + GAP;
}

/** Columns under the drafter's tokens: bars against 0.5, then numbers, then words. @param {Sheet} sheet @param {Ruler} ruler @param {Run} run @param {Win} window */
function drawChecks(sheet, ruler, run, window) {
  drawChart(sheet, ruler, window);
  run.models.forEach((model, m) => {
    sheet.names.append(shape(m, 8, sheet.y + 9));
    numbers(sheet, ruler, window, `p ${shortName(model.name)}`, (check) => check.p[m], (check) => isFirstChoice(window, model, check));
  });
  numbers(sheet, ruler, window, "mean", (check) => check.mean_p, () => false, "f-mean");
  const y = sheet.y + 13;
  sheet.name("verdict", y, "f-name");
  for (const check of made(window.checks)) {
    const word = verdictWord(run, window, check.index);
    sheet.body.append(svg("text", { x: centre(ruler, window, check), y, class: `f-verdict v-${fusionKind(window, check) ?? check.verdict}`, "text-anchor": "middle" }, word));
    if (!check.edge) continue;
    const edge = svg("text", { x: centre(ruler, window, check), y: y + 15, class: "f-edge", "text-anchor": "middle" }, "\u21e5 edge");
    edge.append(svg("title", {}, "Decided at the end of the text drafted so far: what follows may still change a verifier's token."));
    sheet.body.append(edge);
  }
  sheet.y += LINE + (made(window.checks).some((check) => check.edge) ? 16 : 0) + 2;
}

/** @param {Win} window @param {Check} check */
function fusionKind(window, check) {
  const fusion = window.fusions[check.index];
  return fusion === undefined ? null : fusion.replaced ? "replaced" : "kept";
}

/** @param {Ruler} ruler @param {Win} window @param {Check} check */
function centre(ruler, window, check) {
  const token = window.draft[check.index];
  const at = token === undefined ? ruler.box(check.start, check.start) : ruler.box(token.start, spanOf(token).end);
  return at.x + at.width / 2;
}

/** Whether a verifier's own token that starts here is also what it would have put here. @param {Win} window @param {ModelInfo} model @param {Check} check */
function isFirstChoice(window, model, check) {
  const reading = window.readings.find((r) => r.model === model.name);
  const token = reading === undefined ? undefined : reading.tokens.find((t) => t.start === check.start && t.argmax_hex !== null);
  return token !== undefined && token.argmax_hex === token.hex && (token.argmax_eos ?? false) === (token.eos ?? false);
}

/**
 * @param {Sheet} sheet @param {Ruler} ruler @param {Win} window @param {string} name
 * @param {(check: Check) => number|null|undefined} value @param {(check: Check) => boolean} first @param {string} [cls]
 */
function numbers(sheet, ruler, window, name, value, first, cls = "f-p") {
  const y = sheet.y + 13;
  sheet.name(name, y, cls === "f-mean" ? "f-name" : "f-dim", name === "mean" ? "mean over all models of the row above; weighted when weights are set" : `${name}: its probability of its own token that starts here; \u2713 when that is its first choice`);
  for (const check of made(window.checks)) {
    if (check.p.length === 0) continue;
    const p = value(check);
    const text = `${formatP(p)}${p !== null && p !== undefined && first(check) ? "\u2713" : ""}`;
    const node = svg("text", { x: centre(ruler, window, check), y, class: `f-num ${cls}`, "text-anchor": "middle" }, text);
    if (p !== null && p !== undefined) node.append(svg("title", {}, String(p)));
    sheet.body.append(node);
  }
  sheet.y += LINE;
}

/** @type {Array<(x: number, y: number) => SVGElement>} */
const SHAPES = [
  (x, y) => svg("circle", { cx: x, cy: y, r: 4 }),
  (x, y) => svg("rect", { x: x - 3.5, y: y - 3.5, width: 7, height: 7 }),
  (x, y) => svg("path", { d: `M${x},${y - 5}L${x + 5},${y + 4}L${x - 5},${y + 4}Z` }),
  (x, y) => svg("path", { d: `M${x},${y - 5}L${x + 5},${y}L${x},${y + 5}L${x - 5},${y}Z` }),
  (x, y) => svg("path", { d: `M${x - 4},${y}H${x + 4}M${x},${y - 4}V${y + 4}` }),
];

/** @param {number} m model @param {number} x @param {number} y */
function shape(m, x, y) {
  const node = SHAPES[m % SHAPES.length](x, y);
  node.setAttribute("class", `f-mark m${m % SHAPES.length}`);
  return node;
}

/** @param {Sheet} sheet @param {Ruler} ruler @param {Win} window */
function drawChart(sheet, ruler, window) {
  const top = sheet.y + 4;
  const level = (/** @type {number} */ p) => top + CHART * (1 - p);
  sheet.body.append(svg("line", { x1: 0, x2: sheet.width, y1: level(0), y2: level(0), class: "f-tick" }));
  for (const check of made(window.checks)) {
    const x = centre(ruler, window, check);
    if (check.mean_p !== null) {
      const bar = svg("rect", { x: x - 9, y: level(check.mean_p), width: 18, height: CHART * check.mean_p, class: `f-bar${check.mean_p > 0.5 ? " f-above" : ""}` });
      bar.append(svg("title", {}, `mean ${check.mean_p}`));
      sheet.body.append(bar);
    }
    const shown = check.p.flatMap((p, m) => (p === null ? [] : [{ p, m }]));
    shown.forEach(({ p, m }, k) => sheet.body.append(shape(m, x + (k - (shown.length - 1) / 2) * 10, level(p))));
  }
  sheet.body.append(svg("line", { x1: 0, x2: sheet.width, y1: level(0.5), y2: level(0.5), class: "f-threshold" }));
  sheet.name("0.5", level(0.5) + 4, "f-dim", "threshold: a mean strictly above 0.5 is a majority");
  sheet.y = top + CHART + 8;
}

/** How wide the column of names must be. @param {Run} run @param {number} most */
export function labelWidthOf(run, most) {
  const names = run.models.map((model) => measure(`p ${shortName(model.name)}`, 12, "sans-serif"));
  return Math.min(most, Math.max(86, ...names.map((width) => width + 40)));
}

const TRACK = 76;

/**
 * Candidates of one fusion, best first: a bar per model, the mean, and the value that decided.
 * @param {Run} run @param {Fusion} fusion @param {number} count rows to show
 * @param {number} labelWidth
 */
export function candidateSheet(run, fusion, count, labelWidth) {
  const sheet = new Sheet(labelWidth);
  const sharpened = fusion.candidates.some((c) => c.sharpened !== c.mean);
  const heads = [...run.models.map((model) => shortName(model.name)), "mean", ...(sharpened ? [`sharpened (${fusion.sharpen})`] : [])];
  const lane = Math.max(132, Math.min(210, Math.max(...heads.map((head) => measure(head, 12, "sans-serif"))) + 36));
  sheet.width = heads.length * lane + 130;
  sheet.name("candidate", 12, "f-dim");
  heads.forEach((head, i) => {
    const text = svg("text", { x: i * lane + (i < run.models.length ? 18 : 4), y: 12, class: i < run.models.length ? "f-dim" : "f-name" }, clip(head, lane - 26, 12, "sans-serif"));
    text.append(svg("title", {}, headHelp(run, fusion, i)));
    sheet.body.append(text);
    if (i < run.models.length) sheet.body.append(shape(i, i * lane + 8, 8));
  });
  sheet.y = 20;
  for (const candidate of fusion.candidates.slice(0, count)) drawCandidate(sheet, run, fusion, candidate, sharpened, lane);
  sheet.y += 4;
  return sheet;
}

/** @param {Run} run @param {Fusion} fusion @param {number} i column */
function headHelp(run, fusion, i) {
  if (i < run.models.length) return `${run.models[i].name}: its probability over the candidates`;
  if (i === run.models.length) return "mean over the models before sharpening; weighted when weights are set";
  return fusion.sharpen === "geom" ? "geometric mean in place of the mean, because the mean was smooth" : "mean plus the mass of longer candidates that begin with it, because the mean was smooth";
}

/** Height of a candidate's row, for the buttons beside it. */
export const CANDIDATE = 24;

/** @param {Sheet} sheet @param {Run} run @param {Fusion} fusion @param {CandidateRecord} candidate @param {boolean} sharpened @param {number} lane */
function drawCandidate(sheet, run, fusion, candidate, sharpened, lane) {
  const y = sheet.y;
  const same = (/** @type {string} */ hex, /** @type {boolean|undefined} */ eos) => candidate.hex === hex && (candidate.eos ?? false) === (eos ?? false);
  const won = same(fusion.chosen_hex, fusion.chosen_eos);
  const drafted = same(fusion.draft_hex, fusion.draft_eos);
  const text = candidate.eos ? END : label(fromHex(candidate.hex));
  if (won) {
    sheet.names.append(svg("rect", { x: 0, y: y + 1, width: sheet.labelWidth, height: CANDIDATE - 2, class: "f-won" }));
    sheet.body.append(svg("rect", { x: 0, y: y + 1, width: sheet.width, height: CANDIDATE - 2, class: "f-won" }));
  }
  sheet.name(text, y + 16, `f-mono${won ? " f-bold" : ""}`, candidate.eos ? "end of sequence" : `bytes ${candidate.hex}`);
  const values = [...candidate.p, candidate.mean, ...(sharpened ? [candidate.sharpened] : [])];
  values.forEach((value, i) => {
    const x = i * lane + 4;
    const m = i < run.models.length ? `m${i % SHAPES.length}` : "f-total";
    sheet.body.append(svg("rect", { x, y: y + 6, width: TRACK, height: 12, class: "f-lane" }));
    if (i > run.models.length) sheet.body.append(svg("rect", { x, y: y + 6, width: TRACK * Math.min(1, candidate.mean), height: 12, class: "f-ghost" }));
    const from = i > run.models.length && value > candidate.mean ? TRACK * Math.min(1, candidate.mean) : 0;
    sheet.body.append(svg("rect", { x: x + from, y: y + 6, width: TRACK * Math.min(1, value) - from, height: 12, class: `f-fill ${m}` }));
    const moved = i > run.models.length && value !== candidate.mean ? "\u2192 " : "";
    const number = svg("text", { x: x + TRACK + 6, y: y + 16, class: `f-num${i === values.length - 1 && won ? " f-bold" : ""}` }, `${moved}${formatP(value)}`);
    number.append(svg("title", {}, String(value)));
    sheet.body.append(number);
  });
  const half = run.models.length * lane + 4 + TRACK / 2;
  sheet.body.append(svg("line", { x1: half, x2: half, y1: y + 4, y2: y + 20, class: "f-threshold" }));
  const note = won ? (drafted ? "\u2211 won, drafter's own" : "\u21c4 won") : drafted ? "drafter's" : "";
  if (note !== "") sheet.body.append(svg("text", { x: values.length * lane + 6, y: y + 16, class: `f-note${won ? " f-bold" : ""}` }, note));
  sheet.y += CANDIDATE;
}

const COPIED = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor", "text-decoration", "paint-order"];

/** Gives a copied drawing the look it has on the page, so that it stands alone. @param {Element} original @param {Element} copy */
function fixLook(original, copy) {
  const style = getComputedStyle(original);
  for (const name of COPIED) {
    const value = style.getPropertyValue(name);
    if (value !== "") copy.setAttribute(name, value);
  }
  for (const name of ["class", "role", "tabindex", "aria-label"]) copy.removeAttribute(name);
  for (let i = 0; i < original.children.length; i += 1) fixLook(original.children[i], copy.children[i]);
}

/**
 * One SVG of what an inspector shows: heading, drawings as they are, the sentence below.
 * @param {string} heading @param {string} times @param {string} sentence
 * @param {Board[]} sheets as shown
 * @param {{background: string, ink: string}} colours
 */
export function composeSvg(heading, times, sentence, sheets, colours) {
  const width = Math.max(480, measure(heading, 15, "bold sans-serif") + 12, ...sheets.map((sheet) => sheet.labelWidth + sheet.width)) + 24;
  const out = svg("svg", { xmlns: "http://www.w3.org/2000/svg" });
  const ground = svg("rect", { x: 0, y: 0, width, fill: colours.background });
  const words = (/** @type {string} */ text, /** @type {number} */ y, /** @type {number} */ size, /** @type {number} */ weight) => svg("text", { x: 12, y, fill: colours.ink, "font-family": "sans-serif", "font-size": size, "font-weight": weight }, text);
  out.append(ground, words(heading, 24, 15, 600), words(times, 42, 12, 400));
  let y = 56;
  for (const sheet of sheets) {
    for (const { part, x } of [{ part: sheet.names, x: 12 }, { part: sheet.body, x: 12 + sheet.labelWidth }]) {
      const copy = /** @type {SVGElement} */ (part.cloneNode(true));
      fixLook(part, copy);
      const place = svg("g", { transform: `translate(${x},${y})` });
      place.append(copy);
      out.append(place);
    }
    y += sheet.height + 14;
  }
  for (const line of wrap(sentence, width - 24)) {
    out.append(words(line, y + 6, 13, 400));
    y += 19;
  }
  out.setAttribute("width", String(width));
  out.setAttribute("height", String(y + 8));
  out.setAttribute("viewBox", `0 0 ${width} ${y + 8}`);
  ground.setAttribute("height", String(y + 8));
  return out;
}

/** @param {string} text @param {number} width */
function wrap(text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = lines[lines.length - 1] === "" ? word : `${lines[lines.length - 1]} ${word}`;
    if (measure(longer, 13, "sans-serif") > width && lines[lines.length - 1] !== "") lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

/** An SVG as a picture of dots, twice as fine as the screen. @param {SVGElement} drawing @returns {Promise<Blob>} */
export async function toPng(drawing) {
  const image = new Image();
  const source = new XMLSerializer().serializeToString(drawing);
  const url = URL.createObjectURL(new Blob([source], { type: "image/svg+xml" }));
  try {
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = 2 * Number(drawing.getAttribute("width"));
    canvas.height = 2 * Number(drawing.getAttribute("height"));
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) => {
      canvas.toBlob((blob) => (blob === null ? reject(new Error("The picture is too large to draw.")) : resolve(blob)), "image/png");
    });
  } finally {
    URL.revokeObjectURL(url);
  }
}
