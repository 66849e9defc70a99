// Verdicts as sentences. A sentence is a list of parts: strings, and quoted bytes (`{quote: bytes}`), so that what a model
// wrote stays apart from what the page says, on screen and when read aloud.

import { exactText, fromHex, label } from "./text.js";

/** @import { Run } from "./trace-model.js" */
/** @import { Check, Fusion, Part, Tok, Win } from "./types.d.ts" */

/** A kind of token, as legend and help name it. @typedef {{key: string, name: string, words: string, help: string}} Kind */
/** What a quoted token needs: its hex or its bytes. @typedef {{hex: string, eos?: boolean}} Quotable */

/** The states a token can be in, loudest last: name, words, and what it means. @type {Kind[]} */
export const STATES = [
  { key: "agree", name: "all agree", words: "everyone's first choice",
    help: "Every verifier's own most likely token starts here exactly as drafted: accepted without fusing." },
  { key: "majority", name: "majority", words: "above one half on average",
    help: "Not everyone's first choice, but the mean of all models' probabilities is above 0.5: accepted without fusing." },
  { key: "oov", name: "not safe", words: "a verifier has no boundary here: not asked",
    help: "The token starts where some verifier's own reading has no token boundary. Asked there, it would continue from text it never sees cut that way (OOV-like), so the drafter's token is kept." },
  { key: "kept", name: "fused, kept", words: "fused, the drafter's token won",
    help: "The models' distributions were fused here and the drafter's own token came out on top." },
  { key: "replaced", name: "fused, replaced", words: "fused, another token won",
    help: "The models' distributions were fused here and another token won. Press t to see what the drafter had written." },
  { key: "broken", name: "asked on a broken prefix", words: "fused while a model read an OOV-like prefix",
    help: "This method fuses at every token. Here at least one model was asked although the text so far ends where that model has no boundary (OOV-like), so its answer is about a prefix it has hardly ever seen." },
];

/** States without a claim of their own; shown quietly. @type {Kind[]} */
export const QUIET = [
  { key: "gated", name: "gate", words: "the drafter was sure: nothing fused",
    help: "GaC's gate: the main model's top probability is above 0.5, so it decides alone." },
  { key: "unaligned", name: "unaligned", words: "a tokenizer changes these bytes: never fused",
    help: "A verifier's tokenizer normalises this text and does not give back the same bytes, so positions cannot be compared." },
  { key: "unchecked", name: "unchecked", words: "no check was made",
    help: "No check was made at this position." },
  { key: "plain", name: "one model", words: "decoded by one model alone",
    help: "One model decodes alone: there is nothing to check." },
  { key: "end", name: "end", words: "end of sequence", help: "The model ended its answer here. End of sequence has no bytes." },
];

/**
 * Numbers of the status line: how each is named and what it counts.
 * @type {Array<{key: keyof ReturnType<Run["stats"]>, name: string, help: string}>}
 */
export const STATS = [
  { key: "tokens", name: "tokens", help: "Tokens of the response so far, end of sequence included." },
  { key: "windows", name: "windows", help: "Cycles of drafting and checking so far." },
  { key: "fusedShare", name: "E/T", help: "Ensemble operations divided by response tokens: how often models had to be fused." },
  { key: "replaced", name: "replaced", help: "Ensemble operations whose winner differs from the drafter's token." },
  { key: "oov", name: "OOV-like", help: "SAFE: tokens kept because a verifier has no boundary where they start. UniTE and GaC alone: tokens at which a model was asked although it read an OOV-like prefix." },
  { key: "discarded", name: "discarded", help: "Tokens the drafter proposed that are not in the response." },
  { key: "edges", name: "edge", help: "Checks decided at the end of the text drafted so far, where what follows may still change a verifier's token." },
  { key: "tokensPerSecond", name: "tokens/s", help: "Response tokens divided by the time spent drafting, retokenizing, verifying and fusing." },
];

/** A model's name without its owner. @param {string} name */
export function shortName(name) {
  return name.slice(name.lastIndexOf("/") + 1);
}

/** A probability in few digits that never reads as 0, 1 or one half when it is not. @param {number|null|undefined} p */
export function formatP(p) {
  if (p === null || p === undefined) return "\u2013";
  for (const digits of [2, 3, 4]) {
    /** @type {string} */
    const text = p.toFixed(digits);
    /** @type {number} */
    const value = Number(text);
    if ((value === 0 || value === 0.5 || value === 1) && value !== p) continue;
    return text.replace(/^0(?=\.)/, "");
  }
  if (p < 0.25) return "<.0001";
  if (p > 0.75) return ">.9999";
  return p < 0.5 ? "<.5" : ">.5";
}

/** A probability inside a sentence. @param {number|null|undefined} p */
export function sayP(p) {
  return formatP(p).replace(/^([<>]?)\./, "$10.");
}

/** @param {number} ms */
export function formatMs(ms) {
  return `${ms >= 100 ? ms.toFixed(0) : ms >= 1 ? ms.toFixed(1) : ms.toFixed(2)} ms`;
}

/** A statistic as text. @param {string} key @param {number|null} value */
export function formatStat(key, value) {
  if (value === null) return "\u2013";
  if (key === "fusedShare") return value.toFixed(2);
  if (key === "tokensPerSecond") return value >= 100 ? value.toFixed(0) : value.toFixed(1);
  return String(value);
}

/** Names joined as in speech. @param {string[]} names */
export function listNames(names) {
  const short = names.map(shortName);
  return short.length < 2 ? short.join("") : `${short.slice(0, -1).join(", ")} and ${short[short.length - 1]}`;
}

/** @param {Quotable} token @returns {Part} */
function quote(token) {
  return token.eos ? { eos: true } : { quote: fromHex(token.hex) };
}

/** Parts as plain text: quoted bytes between quotation marks and bidi isolates. @param {Part[]} parts */
export function asText(parts) {
  return parts.map((part) => (typeof part === "string" ? part : "eos" in part ? "end of sequence" : `\u201c\u2068${label(part.quote)}\u2069\u201d`)).join("");
}

/**
 * Why no boundary: the verifier's own token that spans the place `start`, cut there.
 * @param {Win} window @param {string} name @param {number} start @returns {Part[]}
 */
function straddle(window, name, start) {
  const reading = window.readings.find((r) => r.model === name);
  const token = reading === undefined ? undefined : reading.tokens.find((t) => t.start < start && t.start + t.hex.length / 2 > start);
  if (token === undefined) return [`${shortName(name)} has no boundary here`];
  const bytes = fromHex(token.hex);
  return [`${shortName(name)} reads `, { quote: bytes }, ` as one token and would have to continue from `, { quote: bytes.subarray(0, start - token.start) }];
}

/** @param {Part[][]} lists @param {string} glue */
function join(lists, glue) {
  return lists.flatMap((list, i) => (i === 0 ? list : [glue, ...list]));
}

/** @param {Check|undefined} check @returns {Part[]} */
function edgeNote(check) {
  return check !== undefined && check.edge
    ? [" Decided at the edge of the text drafted so far: what follows may still change a verifier's token."]
    : [];
}

/** @param {Fusion} fusion */
function winner(fusion) {
  return fusion.candidates.find((c) => c.hex === fusion.chosen_hex && (c.eos ?? false) === (fusion.chosen_eos ?? false));
}

/** What the fusion decided, from the ensemble event. @param {Fusion} fusion @returns {Part[]} */
export function fusionSentence(fusion) {
  const chosen = winner(fusion);
  const won = quote({ eos: fusion.chosen_eos, hex: fusion.chosen_hex });
  const draft = quote({ eos: fusion.draft_eos, hex: fusion.draft_hex });
  const mass = chosen === undefined ? [] : [` with ${sayP(chosen.mean)}`];
  if (chosen !== undefined && chosen.sharpened !== chosen.mean) mass.push(`, sharpened to ${sayP(chosen.sharpened)}`);
  const smooth = fusion.smooth ? " (no candidate reached 0.5, so the distribution was smooth)" : "";
  return fusion.replaced
    ? ["Fused: ", won, " won", ...mass, smooth, " and replaced the drafter's ", draft, "."]
    : ["Fused: the drafter's ", draft, " won", ...mass, smooth, " and was kept."];
}

/**
 * Why the token at a draft position stands, or does not.
 * @param {Run} run
 * @param {Win} window
 * @param {number} index draft position
 * @param {Tok|null} token the committed token, null when it was discarded
 * @returns {Part[]}
 */
export function verdictSentence(run, window, index, token) {
  const check = window.checks[index];
  const fusion = window.fusions[index];
  if (token === null && fusion === undefined) return discardedSentence(run, window, index);
  if (fusion !== undefined && (token === null || token.fused)) return fusedSentence(run, window, check, fusion, token);
  if (token === null) return discardedSentence(run, window, index);
  if (check === undefined) {
    const alone = run.start !== null && run.start.method === "single" ? `${shortName(run.models[0].name)} decodes alone` : "No check was made here";
    return [quote(token), `: ${alone}.`];
  }
  return [...acceptedSentence(run, window, check, token), ...edgeNote(check)];
}

/** Behind "the drafter's token". */
const FATES = {
  waits: " is drafted and waits for its check.",
  "passed on": " waits: the next window takes it over, since its last character was not complete here.",
  gone: " was discarded: this window ended before it.",
  stands: " stands.",
};

/** @param {Run} run @param {Win} window @param {number} index @returns {Part[]} */
function discardedSentence(run, window, index) {
  const drafted = window.draft[index];
  return drafted === undefined ? ["There is no token here."] : ["The drafter's ", quote(drafted), FATES[run.fate(window, index)]];
}

/** What the models said that were asked on an OOV-like prefix. @param {Win} window @param {Check} check @returns {Part[]} */
function brokenSentence(window, check) {
  /** @type {Part[][]} */
  const answers = (check.broken ?? []).map((answer) => [`${shortName(answer.model)} answered `, quote(answer), ` (${sayP(answer.p)})`]);
  const reasons = check.oov_for.map((name) => straddle(window, name, check.start));
  const said = answers.length === 0 ? [] : ["; ", ...join(answers, ", ")];
  return ["Asked on a broken prefix: ", ...join(reasons, "; "), ...said, ". "];
}

/**
 * @param {Run} run @param {Win} window @param {Check|undefined} check @param {Fusion} fusion @param {Tok|null} token
 * @returns {Part[]}
 */
function fusedSentence(run, window, check, fusion, token) {
  /** @type {Part[]} */
  const parts = [];
  if (check !== undefined && check.oov_for.length > 0) {
    parts.push(...brokenSentence(window, check));
  } else if (run.everyToken) {
    parts.push("Every model has a boundary here. ");
  } else if (check !== undefined && check.mean_p !== null) {
    parts.push(`Safe to fuse, and no consensus: the mean ${sayP(check.mean_p)} is not above 0.5 and not everyone's first choice. `);
  } else {
    parts.push("Safe to fuse, and no consensus. ");
  }
  parts.push(...fusionSentence(fusion));
  if (token !== null && token.fused && token.hex !== fusion.chosen_hex && !token.eos) {
    parts.push(" This token, ", { quote: token.bytes }, `, is piece ${token.piece + 1} of it in the drafter's own tokens.`);
  }
  return [...parts, ...edgeNote(check)];
}

/** @param {Run} run @param {Win} window @param {Check} check @param {Tok} token @returns {Part[]} */
function acceptedSentence(run, window, check, token) {
  const own = quote(token);
  const everyone = run.models.length === 2 ? "Both models" : `All ${run.models.length} models`;
  const mean = check.mean_p === null ? "" : ` (mean ${sayP(check.mean_p)})`;
  switch (check.verdict) {
    case "oov":
      return ["Not safe to ask: ", ...join(check.oov_for.map((name) => straddle(window, name, check.start)), "; "), ". The drafter's ", own, " is kept."];
    case "unanimous":
      return [`${everyone} agree: each one's own first choice starts here just so${mean}. `, own, " is kept without fusing."];
    case "majority":
      return [`Not everyone's first choice, but the mean ${sayP(check.mean_p)} is above 0.5: `, own, " is kept without fusing."];
    case "gated":
      return ["The gate let ", own, ` stand: ${shortName(run.models[0].name)}'s top probability is above 0.5${check.p[0] === null ? "" : ` (${sayP(check.p[0])})`}, so nothing was fused.`];
    case "unaligned":
      return ["A verifier's tokenizer does not give these bytes back as they are, so nothing was fused: ", own, " is kept."];
    default:
      return ["No check was made here: ", own, " is kept."];
  }
}

const WAITING = { gone: "discarded", "passed on": "next window", waits: "waits", stands: "unchecked" };
const WORDS = { oov: "not safe", unanimous: "all agree", majority: "majority", gated: "gate", unaligned: "unaligned", ensemble: "fuse" };

/** Names of the states as short words for a column of the inspector. @param {Run} run @param {Win} window @param {number} index */
export function verdictWord(run, window, index) {
  const check = window.checks[index];
  const fusion = window.fusions[index];
  if (fusion !== undefined) return fusion.replaced ? "replaced" : "fused, kept";
  if (check === undefined) return "";
  return check.verdict === "unchecked" ? WAITING[run.fate(window, index)] : WORDS[check.verdict];
}

/** The sentence of a committed token. @param {Run} run @param {Tok} token */
export function tokenSentence(run, token) {
  return verdictSentence(run, run.windows[token.window], token.index, token);
}

/** Read aloud for a chip: place, text, state and reason. @param {Run} run @param {Tok} token */
export function ariaLabel(run, token) {
  const what = token.eos ? "end of sequence" : token.control ? `control token ${exactText(token.bytes)}` : label(token.bytes);
  return `Token #${token.i}, \u2068${what}\u2069. ${asText(tokenSentence(run, token))}`;
}
