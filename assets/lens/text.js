// Bytes to what is drawn: every byte has a visible place, no byte is guessed, nothing is ever parsed as markup.

/** @import { Cell, Cluster, SharedCharacter, Tok } from "./types.d.ts" */

/** A code point of a text in bytes; `char` null for a byte of no character. @typedef {{char: string|null, start: number, end: number}} Point */
/** A character as it is drawn; `text` null for stray bytes. @typedef {{text: string|null, start: number, end: number, points: number}} Group */
/** What is needed of a token to group it. @typedef {Pick<Tok, "bytes"|"start"|"end">} Span */

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

const BLANK = "\u2423";
/** @type {Map<number, [string, string]>} */
const NAMED = new Map([
  [0x20, [BLANK, "blank"]],
  [0x09, ["\u21e5", "tab"]],
  [0x0a, ["\u21b5", "newline"]],
  [0x0d, ["CR", "carriage return"]],
  [0x7f, ["DEL", "delete"]],
  [0xa0, ["NBSP", "no-break space"]],
  [0xad, ["SHY", "soft hyphen"]],
  [0x034f, ["CGJ", "combining grapheme joiner"]],
  [0x061c, ["ALM", "Arabic letter mark"]],
  [0x200b, ["ZWSP", "zero width space"]],
  [0x200c, ["ZWNJ", "zero width non-joiner"]],
  [0x200d, ["ZWJ", "zero width joiner"]],
  [0x200e, ["LRM", "left-to-right mark"]],
  [0x200f, ["RLM", "right-to-left mark"]],
  [0x2028, ["LSEP", "line separator"]],
  [0x2029, ["PSEP", "paragraph separator"]],
  [0x202a, ["LRE", "left-to-right embedding"]],
  [0x202b, ["RLE", "right-to-left embedding"]],
  [0x202c, ["PDF", "pop directional formatting"]],
  [0x202d, ["LRO", "left-to-right override"]],
  [0x202e, ["RLO", "right-to-left override"]],
  [0x202f, ["NNBSP", "narrow no-break space"]],
  [0x2060, ["WJ", "word joiner"]],
  [0x2066, ["LRI", "left-to-right isolate"]],
  [0x2067, ["RLI", "right-to-left isolate"]],
  [0x2068, ["FSI", "first strong isolate"]],
  [0x2069, ["PDI", "pop directional isolate"]],
  [0x3000, ["IDSP", "ideographic space"]],
  [0xfe0e, ["VS15", "text presentation selector"]],
  [0xfe0f, ["VS16", "emoji presentation selector"]],
  [0xfeff, ["BOM", "byte order mark"]],
]);
const CONTROLS = "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US".split(" ");
const INVISIBLE = /^[\p{Cc}\p{Cf}\p{Cn}\p{Co}\p{Cs}\p{Zs}\p{Zl}\p{Zp}\u{fffc}\u{fffd}\u{2800}\u{3164}\u{115f}\u{1160}\u{ffa0}]$/u;
const MARK = /^\p{M}$/u;
const ZWJ = "\u200d";
const JOINS = new Set([0x200d, 0xfe0e, 0xfe0f]);
const RUN = 5;

/** @param {string} hex lower-case hex @returns {Uint8Array<ArrayBuffer>} */
export function fromHex(hex) {
  const bytes = new Uint8Array(hex.length >> 1);
  for (let i = 0; i < bytes.length; i += 1) bytes[i] = Number.parseInt(hex.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}

/** @param {Uint8Array} bytes @returns {string} lower-case hex */
export function toHex(bytes) {
  let hex = "";
  for (const byte of bytes) hex += byte.toString(16).padStart(2, "0");
  return hex;
}

/** @param {string} text @returns {number} its length in UTF-8 bytes */
export function byteLength(text) {
  return encoder.encode(text).length;
}

/** Bytes as a person reads them: `F0 9F`. @param {Uint8Array} bytes */
export function spellBytes(bytes) {
  return toHex(bytes).toUpperCase().replace(/(..)(?=.)/g, "$1 ");
}

/** How many bytes the character that begins at `at` has; 0 when no whole character begins there. @param {Uint8Array} bytes @param {number} at */
function characterLength(bytes, at) {
  const lead = bytes[at];
  if (lead < 0x80) return 1;
  const length = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 && lead < 0xe0 ? 2 : 0;
  if (length === 0 || lead >= 0xf5 || at + length > bytes.length) return 0;
  try {
    strict.decode(bytes.subarray(at, at + length));
  } catch {
    return 0;
  }
  return length;
}

/**
 * Cuts bytes into code points and stray bytes.
 * @param {Uint8Array} bytes
 * @returns {Point[]} offsets in `bytes`
 */
export function codePoints(bytes) {
  const points = [];
  for (let at = 0; at < bytes.length; ) {
    const length = characterLength(bytes, at);
    const end = at + Math.max(1, length);
    points.push({ char: length === 0 ? null : strict.decode(bytes.subarray(at, end)), start: at, end });
    at = end;
  }
  return points;
}

/**
 * The exact text of bytes. A byte that belongs to no character is spelled `\xNN`, so that nothing is lost.
 * @param {Uint8Array} bytes
 */
export function exactText(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return codePoints(bytes)
      .map((p) => p.char ?? `\\x${bytes[p.start].toString(16).padStart(2, "0")}`)
      .join("");
  }
}

/**
 * Widens a byte range to whole characters.
 * @param {Uint8Array} bytes @param {number} start @param {number} end @returns {[number, number]}
 */
export function wholeCharacters(bytes, start, end) {
  const inside = (/** @type {number} */ at) => at > 0 && at < bytes.length && (bytes[at] & 0xc0) === 0x80;
  let [from, to] = [start, end];
  for (let back = 0; back < 3 && inside(from); back += 1) from -= 1;
  for (let on = 0; on < 3 && inside(to); on += 1) to += 1;
  return [from, to];
}

/**
 * A visible name and a description of a special character; null for an ordinary one.
 * @param {string} char @returns {[string, string]|null}
 */
function special(char) {
  const code = codeOf(char);
  const named = NAMED.get(code);
  if (named !== undefined) return named;
  if (!INVISIBLE.test(char)) return null;
  const number = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
  if (code < 0x20) return [CONTROLS[code], `control character ${number}`];
  return [number, `character ${number}, which has no look of its own`];
}

/** @param {string} char not empty */
function codeOf(char) {
  return /** @type {number} */ (char.codePointAt(0));
}

/** Whether a character is drawn only together with the one before it. @param {string} char */
function clings(char) {
  const code = codeOf(char);
  return MARK.test(char) || JOINS.has(code) || (code >= 0x1f3fb && code <= 0x1f3ff);
}

/**
 * Code points in groups that are drawn as one character: user-perceived characters, control characters always alone.
 * @param {Uint8Array} bytes
 * @returns {Group[]}
 */
export function characters(bytes) {
  const points = codePoints(bytes);
  const groups = [];
  for (let i = 0; i < points.length; ) {
    let j = i;
    while (j < points.length && joinable(points[j])) j += 1;
    if (j === i) {
      groups.push({ text: points[i].char, start: points[i].start, end: points[i].end, points: 1 });
      i += 1;
      continue;
    }
    const text = points.slice(i, j).map((p) => p.char).join("");
    for (const part of graphemes(text)) {
      const count = Array.from(part).length;
      groups.push({ text: part, start: points[i].start, end: points[i + count - 1].end, points: count });
      i += count;
    }
  }
  return groups;
}

/** @param {Point} point */
function joinable(point) {
  if (point.char === null) return false;
  return JOINS.has(codeOf(point.char)) || special(point.char) === null || isTag(point.char);
}

/** @param {string} char */
function isTag(char) {
  const code = codeOf(char);
  return code >= 0xe0020 && code <= 0xe007f;
}

const segmenter = typeof Intl !== "undefined" && "Segmenter" in Intl ? new Intl.Segmenter("und", { granularity: "grapheme" }) : null;

/** @param {string} text @returns {string[]} */
function graphemes(text) {
  if (/^[\x21-\x7e]*$/.test(text)) return Array.from(text);
  if (segmenter !== null) return Array.from(segmenter.segment(text), (part) => part.segment).flatMap(unjoin);
  return Array.from(text).reduce((parts, char) => {
    if (parts.length > 0 && clings(char)) parts[parts.length - 1] += char;
    else parts.push(char);
    return parts;
  }, /** @type {string[]} */ ([]));
}

/** A joiner that joins nothing is a character of its own. @param {string} part @returns {string[]} */
function unjoin(part) {
  return part.length > 1 && part.endsWith(ZWJ) ? [...unjoin(part.slice(0, -1)), ZWJ] : [part];
}

/**
 * What is drawn for bytes that stand alone (a token, a candidate, a word in a sentence).
 * @param {Uint8Array} bytes
 * @param {number} offset added to every cell's offsets
 * @returns {Cell[]} never empty for non-empty bytes; labels never hold U+FFFD or an invisible character
 */
export function cells(bytes, offset = 0) {
  /** @type {Cell[]} */
  const out = [];
  for (const group of characters(bytes)) {
    const cell = cellOf(bytes, group);
    cell.start += offset;
    cell.end += offset;
    const last = out[out.length - 1];
    if (last !== undefined && cell.kind === "text" && last.kind === "text") {
      last.label += cell.label;
      last.end = cell.end;
    } else {
      out.push(cell);
    }
  }
  return foldRuns(out);
}

/** @param {Uint8Array} bytes @param {Group} group @returns {Cell} */
function cellOf(bytes, group) {
  const { start, end, text } = group;
  if (text === null) {
    const byte = spellBytes(bytes.subarray(start, end));
    return { kind: "byte", label: byte, start, end, title: `byte ${byte}, a part of a character` };
  }
  const named = group.points === 1 ? special(text) : null;
  if (named !== null) return { kind: "glyph", label: named[0], start, end, title: named[1] };
  const first = Array.from(text)[0];
  if (clings(first)) {
    const shown = special(first);
    return { kind: shown === null ? "text" : "glyph", label: shown === null ? `\u25cc${text}` : shown[0], start, end, title: "" };
  }
  return { kind: "text", label: text, start, end, title: "" };
}

/** Five or more of the same special character, or neighbouring stray bytes, become one cell. @param {Cell[]} list */
function foldRuns(list) {
  const out = [];
  for (let i = 0; i < list.length; ) {
    let j = i + 1;
    while (j < list.length && list[i].kind !== "text" && list[j].kind === list[i].kind && (list[i].kind === "byte" || list[j].label === list[i].label)) j += 1;
    const run = list.slice(i, j);
    if (list[i].kind === "byte" && j - i > 1) {
      out.push({ ...list[i], label: run.map((c) => c.label).join(" "), end: list[j - 1].end, title: "bytes, parts of a character" });
    } else if (j - i >= RUN) {
      out.push({ ...list[i], label: `${list[i].label}\u00d7${j - i}`, end: list[j - 1].end, title: `${j - i} times ${list[i].title}` });
    } else {
      out.push(...run);
    }
    i = j;
  }
  return out;
}

/** One line of text for bytes: the cells' labels. For titles, ruler boxes and read-aloud sentences. @param {Uint8Array} bytes */
export function label(bytes) {
  return cells(bytes).map((cell) => cell.label).join("");
}

/** Whether a token's bytes hold a newline, after which the strip begins a new line. @param {Uint8Array} bytes */
export function breaksLine(bytes) {
  return bytes.includes(0x0a);
}

/**
 * Groups tokens so that every character is whole inside its group.
 * @param {Span[]} tokens consecutive tokens
 * @returns {Cluster[]} `first` inclusive, `last` exclusive, both places in `tokens`
 */
export function clusters(tokens) {
  if (tokens.length === 0) return [];
  const base = tokens[0].start;
  const bytes = new Uint8Array(tokens[tokens.length - 1].end - base);
  for (const token of tokens) bytes.set(token.bytes, token.start - base);
  const shared = sharedCharacters(bytes, tokens, base);
  /** @type {Cluster[]} */
  const out = [];
  let s = 0;
  for (let i = 0; i < tokens.length; ) {
    let j = i + 1;
    const chars = [];
    while (s < shared.length && shared[s].start < tokens[j - 1].end) {
      chars.push(shared[s]);
      while (j < tokens.length && tokens[j].start < shared[s].end) j += 1;
      s += 1;
    }
    out.push({ first: i, last: j, chars });
    i = j;
  }
  return out;
}

/**
 * Characters that a token boundary cuts, with offsets in the response.
 * @param {Uint8Array} bytes @param {Span[]} tokens @param {number} base @returns {SharedCharacter[]}
 */
function sharedCharacters(bytes, tokens, base) {
  const cuts = new Set(tokens.map((token) => token.start - base));
  const shared = [];
  for (const group of withOpenCharacter(bytes)) {
    for (let at = group.start + 1; at < group.end; at += 1) {
      if (cuts.has(at)) {
        shared.push({ label: group.text ?? "\u2026", start: base + group.start, end: base + group.end });
        break;
      }
    }
  }
  return shared;
}

/** Characters of bytes whose last one may still be incomplete: its bytes so far count as one. @param {Uint8Array} bytes */
function withOpenCharacter(bytes) {
  const groups = characters(bytes);
  let open = groups.length;
  while (open > 0 && groups[open - 1].text === null && groups.length - open < 3) open -= 1;
  const lead = open < groups.length ? bytes[groups[open].start] : 0;
  if (groups.length - open > 1 && lead >= 0xc2 && lead < 0xf5) {
    groups.splice(open, groups.length - open, { text: null, start: groups[open].start, end: bytes.length, points: 0 });
  }
  return groups;
}

/** The largest number of bytes one of the tokens' open end may still change: a place to continue grouping from. @param {Span[]} tokens */
export function lastClosed(tokens) {
  const groups = clusters(tokens);
  return groups.length === 0 ? 0 : groups[groups.length - 1].first;
}
