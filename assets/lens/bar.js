// Steps, legend and help of a lens: what stands above its panes.

import { button, el } from "./dom.js";
import { keyName, KEYS } from "./keys.js";
import { QUIET, STATES } from "./sentences.js";

const SPEEDS = [1, 2, 4, 8, 16];
const SIGNS = [
  ["\u2423", "a blank"], ["\u21b5", "a newline"], ["\u21e5", "a tab"], ["CR", "a carriage return"], ["NBSP", "a no-break space"],
  ["ZWSP", "an invisible character, by name"], ["F0 9F", "bytes that are no whole character in this token"],
  ["\u2318", "a control token of the model, not the same text written out"], ["\u25c6", "the first byte at which the two responses differ"],
  ["\u2713", "a model's own first choice"], ["\u2715", "a drafter boundary where that model has none: OOV-like"],
  ["edge", "decided at the end of the text drafted so far: what follows may still change a verifier's token"],
];

/**
 * @typedef {Object} Wishes
 * @property {(action: string) => void} act         see keys.js
 * @property {(i: number) => void} seek             the scrubber was moved to a token
 * @property {() => void} pace                      another speed was chosen
 * @property {(kind: string) => void} nextOfKind    a kind of the legend was pressed
 * @property {(() => void)|null} switchTheme        null where the page decides
 */

/** Buttons for steps, a scrubber, and the legend. */
export class Bar {
  /** @param {Wishes} wishes */
  constructor(wishes) {
    this.wishes = wishes;
    this.playButton = this.#step("\u25b6", "Play (space)", "play");
    this.playButton.classList.add("play");
    this.speed = el("select", "speed", "", { "aria-label": "Tokens per second when playing" });
    for (const rate of SPEEDS) this.speed.append(el("option", "", `${rate}/s`, { value: String(rate) }));
    this.speed.value = "2";
    this.speed.addEventListener("change", () => wishes.pace());
    this.scrubber = el("input", "scrubber", "", { type: "range", min: "0", max: "0", value: "0", "aria-label": "Token" });
    this.scrubber.addEventListener("input", () => wishes.seek(Number(this.scrubber.value)));
    this.place = el("span", "place");
    this.followButton = button("jump follow", "follow", "Stay at the newest token while the run goes on (End)", () => wishes.act("last"));
    this.brokeButton = button("jump broke", "\u26a1 broke here", "First step at which an every-token method asked a model that read an OOV-like prefix, and then replaced the drafter's token (b)", () => wishes.act("broke"));
    this.divergeButton = button("jump", "\u25c6 parts here", "First byte at which the two responses differ (d)", () => wishes.act("divergence"));
    this.peekButton = button("jump", "\u21c4 drafter's", "Show what the drafter had written where another token won (t)", () => wishes.act("peek"));
    this.peekButton.setAttribute("aria-pressed", "false");
    /** By kind. @type {Map<string, {count: HTMLElement, entry: HTMLElement, quiet: boolean}>} */
    this.kinds = new Map();
    this.node = el("div", "top");
    this.node.append(this.#toolbar(), this.#legend());
  }

  /** @param {string} text @param {string} words @param {string} action */
  #step(text, words, action) {
    return button("step", text, words, () => this.wishes.act(action));
  }

  #toolbar() {
    const bar = el("div", "toolbar", "", { role: "toolbar", "aria-label": "Steps" });
    const steps = el("span", "group");
    steps.append(
      this.#step("\u23ee", "First token (Home)", "first"), this.#step("\u00ab", "Previous window (shift \u2190)", "previousWindow"),
      this.#step("\u2039", "Previous token (\u2190)", "previousToken"), this.playButton, this.#step("\u203a", "Next token (\u2192)", "nextToken"),
      this.#step("\u00bb", "Next window (shift \u2192)", "nextWindow"), this.#step("\u23ed", "Last token (End)", "last"), this.speed,
    );
    const jumps = el("span", "group");
    jumps.append(
      this.#step("\u2039", "Previous OOV-like token (O)", "previousOov"), el("span", "group-name", "OOV-like"), this.#step("\u203a", "Next OOV-like token (o)", "nextOov"),
      this.#step("\u2039", "Previous replacement (R)", "previousReplaced"), el("span", "group-name", "replaced"), this.#step("\u203a", "Next replacement (r)", "nextReplaced"),
    );
    const finds = el("span", "group");
    finds.append(this.brokeButton, this.divergeButton, this.followButton);
    const views = el("span", "group views");
    views.append(this.peekButton, this.#step("\u26f6", "Presenter mode: large type, keys only (p)", "presenter"));
    const { switchTheme } = this.wishes;
    if (switchTheme !== null) views.append(button("step", "\u25d0", "Light or dark", switchTheme));
    views.append(this.#step("?", "Keys and signs (?)", "help"));
    const scrub = el("span", "scrub");
    scrub.append(this.scrubber, this.place);
    bar.append(steps, jumps, finds, views, scrub);
    return bar;
  }

  #legend() {
    const legend = el("div", "legend", "", { role: "group", "aria-label": "Legend: kinds of tokens. Press one to go to its next token." });
    for (const state of [...STATES, ...QUIET]) {
      const entry = button("kind", "", `${state.name}: ${state.words}. ${state.help} The numbers count them, one per run; press to go to the next.`, () => this.wishes.nextOfKind(state.key));
      const quiet = QUIET.includes(state);
      if (quiet) entry.classList.add("quiet");
      const count = el("span", "count");
      entry.append(sample(state.key, true), el("span", "kind-name", state.name), count);
      this.kinds.set(state.key, { count, entry, quiet });
      legend.append(entry);
    }
    return legend;
  }

  /** Numbers of the legend. @param {string} kind @param {number[]} counts one per run */
  count(kind, counts) {
    const shown = this.kinds.get(kind);
    if (shown === undefined) return;
    const text = counts.join("\u2009|\u2009");
    if (shown.count.textContent !== text) shown.count.textContent = text;
    if (shown.quiet) shown.entry.hidden = counts.every((count) => count === 0);
  }

  /** @param {boolean} on */
  playing(on) {
    const words = on ? "Pause (space)" : "Play (space)";
    this.playButton.textContent = on ? "\u23f8" : "\u25b6";
    this.playButton.setAttribute("aria-label", words);
    this.playButton.dataset.tip = words;
  }
}

/** What a kind of token looks like. @param {string} kind @param {boolean} aside whether its name stands beside it */
function sample(kind, aside) {
  const node = el("span", `tok sample s-${kind}`);
  node.append(el("span", "c", kind === "end" ? "\u23f9" : "ab"));
  if (aside) node.setAttribute("aria-hidden", "true");
  return node;
}

/** Keys and signs. */
export function helpBox() {
  const box = el("dialog", "help", "", { "aria-label": "Keys and signs" });
  const list = el("dl");
  for (const entry of KEYS) {
    const key = el("dt");
    key.append(el("kbd", "", keyName(entry)));
    list.append(key, el("dd", "", entry.help));
  }
  const signs = el("dl");
  for (const state of [...STATES, ...QUIET]) {
    const term = el("dt");
    term.append(sample(state.key, false));
    signs.append(term, el("dd", "", `${state.name}: ${state.help}`));
  }
  for (const [sign, words] of SIGNS) {
    const term = el("dt");
    term.append(el("span", "c c-glyph", sign));
    signs.append(term, el("dd", "", words));
  }
  const close = el("button", "jump", "close", { type: "button" });
  close.addEventListener("click", () => box.close());
  box.append(el("h3", "", "Keys"), list, el("h3", "", "Signs"), signs, close);
  return box;
}
