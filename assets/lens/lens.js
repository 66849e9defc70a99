// The lens: panes, legend, steps and inspector put together over one list of trace events.

import { button, el, tooltip } from "./dom.js";
import { Feed } from "./feed.js";
import { parseHash, writeHash } from "./hash.js";
import { Inspector } from "./inspector.js";
import { actionOf, isTyping, keyName, KEYS } from "./keys.js";
import { Pane, runTitle } from "./pane.js";
import { QUIET, STATES } from "./sentences.js";
import { Divergence, nextIn } from "./trace-model.js";

/**
 * @typedef {Object} Options
 * @property {Array<{run: string, title?: string}>} [panes]
 * @property {() => boolean} [canFork]         whether candidates offer to continue from them
 * @property {(detail: Object) => void} [onSelect] told of {run, window, token} after the reader chose
 * @property {(detail: Object) => void} [onFork]   told of {run, window, index, hex, eos}
 * @property {(names: string[]) => Promise<Array<string|null>>} [fetchPacks] gets packs of events the server holds
 * @property {"page"|"system"} [theme]         follow the page's `dark` class, or the system with a switch of its own
 * @property {boolean} [link]                  whether the place is kept in the address
 */

const SPEEDS = [1, 2, 4, 8, 16];
const MANY = 1e9;
const SIGNS = [
  ["\u2423", "a blank"], ["\u21b5", "a newline"], ["\u21e5", "a tab"], ["CR", "a carriage return"], ["NBSP", "a no-break space"],
  ["ZWSP", "an invisible character, by name"], ["F0 9F", "bytes that are no whole character in this token"],
  ["\u2318", "a control token of the model, not the same text written out"], ["\u25c6", "the first byte at which the two responses differ"],
  ["\u2713", "a model's own first choice"], ["\u2715", "a drafter boundary where that model has none: OOV-like"],
  ["edge", "decided at the end of the text drafted so far: what follows may still change a verifier's token"],
];
/** @type {Set<Lens>} */
const lenses = new Set();
/** @type {Lens|null} The one that takes keys when nothing has the keyboard. */
let current = null;

/** A mounted lens. */
export class Lens {
  /** @param {HTMLElement} host @param {Options} options */
  constructor(host, options = {}) {
    this.options = { canFork: () => false, onSelect: () => {}, onFork: () => {}, theme: "page", link: false, ...options };
    this.root = el("div", "safe-lens");
    this.root.dir = "ltr";
    /** @type {Map<string, Pane>} */
    this.panes = new Map();
    this.trace = null;
    this.active = "";
    this.selected = -1;
    this.follow = true;
    this.playing = 0;
    this.scheduled = false;
    this.stop = new AbortController();
    this.feed = new Feed({
      reset: (item) => this.reset(item),
      events: (run, events) => this.#take(run, events),
      done: () => this.#schedule(),
      lost: (words) => {
        this.notice.textContent = words;
      },
    }, this.options.fetchPacks);
    this.#build();
    this.tip = tooltip(this.root);
    host.replaceChildren(this.root);
    this.#listen();
    this.#watchTheme();
    this.reset({ panes: this.options.panes ?? [] });
    lenses.add(this);
    current = this;
  }

  // ---- building -------------------------------------------------------------------------------------------------

  #build() {
    this.inspector = new Inspector({
      onToken: (index) => this.#choosePosition(index),
      onFork: (detail) => this.options.onFork(detail),
      canFork: () => this.options.canFork(),
      title: runTitle,
    });
    this.top = el("div", "top");
    this.top.append(this.#toolbar(), this.#legend());
    this.grid = el("div", "panes");
    this.help = this.#helpBox();
    this.notice = el("p", "notice", "", { role: "alert" });
    this.root.append(this.top, this.notice, this.grid, this.inspector.node, this.help);
  }

  #toolbar() {
    const bar = el("div", "toolbar", "", { role: "toolbar", "aria-label": "Steps" });
    const step = (text, words, action) => button("step", text, words, () => this.act(action));
    this.playButton = step("\u25b6", "Play", "play");
    this.playButton.classList.add("play");
    this.speed = /** @type {HTMLSelectElement} */ (el("select", "speed", "", { "aria-label": "Tokens per second when playing" }));
    for (const rate of SPEEDS) this.speed.append(el("option", "", `${rate}/s`, { value: String(rate) }));
    this.speed.value = "2";
    this.speed.addEventListener("change", () => {
      if (this.playing !== 0) this.#play(true);
    });
    this.scrubber = /** @type {HTMLInputElement} */ (el("input", "scrubber", "", { type: "range", min: "0", max: "0", value: "0", "aria-label": "Token" }));
    this.scrubber.addEventListener("input", () => this.select(this.active, Number(this.scrubber.value), "scrub"));
    this.place = el("span", "place");
    this.followButton = button("jump follow", "follow", "Stay at the newest token while the run goes on (End)", () => this.act("last"));
    this.brokeButton = button("jump broke", "\u26a1 broke here", "First step at which an every-token method asked a model that read an OOV-like prefix, and then replaced the drafter's token (b)", () => this.act("broke"));
    this.divergeButton = button("jump", "\u25c6 parts here", "First byte at which the two responses differ (d)", () => this.act("divergence"));
    const steps = el("span", "group");
    steps.append(
      step("\u23ee", "First token (Home)", "first"), step("\u00ab", "Previous window (shift \u2190)", "previousWindow"),
      step("\u2039", "Previous token (\u2190)", "previousToken"), this.playButton, step("\u203a", "Next token (\u2192)", "nextToken"),
      step("\u00bb", "Next window (shift \u2192)", "nextWindow"), step("\u23ed", "Last token (End)", "last"), this.speed,
    );
    const jumps = el("span", "group");
    jumps.append(
      step("\u2039", "Previous OOV-like token (O)", "previousOov"), el("span", "group-name", "OOV-like"), step("\u203a", "Next OOV-like token (o)", "nextOov"),
      step("\u2039", "Previous replacement (R)", "previousReplaced"), el("span", "group-name", "replaced"), step("\u203a", "Next replacement (r)", "nextReplaced"),
    );
    const finds = el("span", "group");
    finds.append(this.brokeButton, this.divergeButton, this.followButton);
    const views = el("span", "group views");
    this.peekButton = button("jump", "\u21c4 drafter's", "Show what the drafter had written where another token won (t)", () => this.act("peek"));
    this.peekButton.setAttribute("aria-pressed", "false");
    views.append(this.peekButton, button("step", "\u26f6", "Presenter mode: large type, keys only (p)", () => this.act("presenter")));
    if (this.options.theme === "system") views.append(button("step", "\u25d0", "Light or dark", () => this.#switchTheme()));
    views.append(button("step", "?", "Keys and signs (?)", () => this.act("help")));
    const scrub = el("span", "scrub");
    scrub.append(this.scrubber, this.place);
    bar.append(steps, jumps, finds, views, scrub);
    return bar;
  }

  #legend() {
    const legend = el("div", "legend", "", { role: "group", "aria-label": "Legend: kinds of tokens. Press one to go to its next token." });
    this.legendCounts = new Map();
    for (const state of [...STATES, ...QUIET]) {
      const entry = button("kind", "", `${state.name}: ${state.words}. ${state.help} The numbers count them, one per run; press to go to the next.`, () => this.#nextOfKind(state.key));
      if (QUIET.includes(state)) entry.classList.add("quiet");
      const count = el("span", "count");
      entry.append(el("span", `tok sample s-${state.key}`, state.key === "end" ? "\u23f9" : "ab", { "aria-hidden": "true" }), el("span", "kind-name", state.name), count);
      this.legendCounts.set(state.key, count);
      legend.append(entry);
    }
    return legend;
  }

  #helpBox() {
    const box = el("dialog", "help", "", { "aria-label": "Keys and signs" });
    const list = el("dl");
    for (const entry of KEYS) {
      const key = el("dt");
      key.append(el("kbd", "", keyName(entry)));
      list.append(key, el("dd", "", entry.help));
    }
    const states = el("dl");
    for (const state of [...STATES, ...QUIET]) {
      const sample = el("dt");
      sample.append(el("span", `tok sample s-${state.key}`, state.key === "end" ? "\u23f9" : "ab"));
      states.append(sample, el("dd", "", `${state.name}: ${state.help}`));
    }
    for (const [sign, words] of SIGNS) {
      const sample = el("dt");
      sample.append(el("span", "c c-glyph", sign));
      states.append(sample, el("dd", "", words));
    }
    const close = el("button", "jump", "close", { type: "button" });
    close.addEventListener("click", () => box.close());
    box.append(el("h3", "", "Keys"), list, el("h3", "", "Signs"), states, close);
    return /** @type {HTMLDialogElement} */ (box);
  }

  #listen() {
    const signal = this.stop.signal;
    document.addEventListener("keydown", (event) => this.#key(event), { signal });
    this.root.addEventListener("pointerdown", () => {
      current = this;
    }, { signal });
    window.addEventListener("hashchange", () => this.#applyHash(), { signal });
    this.sizes = new ResizeObserver(() => {
      this.root.classList.toggle("narrow", this.root.clientWidth < 720);
      if (this.selected >= 0) this.#inspect();
    });
    this.sizes.observe(this.root);
  }

  // ---- theme ----------------------------------------------------------------------------------------------------

  #watchTheme() {
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const apply = () => {
      const dark = this.options.theme === "system" ? (this.chosenTheme ?? (system.matches ? "dark" : "light")) === "dark" : document.body.classList.contains("dark") || document.documentElement.classList.contains("dark");
      this.root.dataset.theme = dark ? "dark" : "light";
      if (this.options.theme === "system") document.documentElement.dataset.theme = this.root.dataset.theme;
      for (const pane of this.panes.values()) pane.minimap.update();
    };
    this.applyTheme = apply;
    system.addEventListener("change", apply, { signal: this.stop.signal });
    if (this.options.theme === "page") {
      this.classes = new MutationObserver(apply);
      for (const node of [document.body, document.documentElement]) this.classes.observe(node, { attributes: true, attributeFilter: ["class"] });
    }
    apply();
  }

  #switchTheme() {
    this.chosenTheme = this.root.dataset.theme === "dark" ? "light" : "dark";
    this.applyTheme();
  }

  // ---- data -----------------------------------------------------------------------------------------------------

  /** Starts a new view. @param {import("./feed.js").Item} item */
  reset(item) {
    this.#play(false);
    this.panes.clear();
    this.grid.replaceChildren();
    this.notice.textContent = "";
    this.trace = item.trace ?? null;
    this.active = "";
    this.selected = -1;
    this.follow = true;
    this.placed = false;
    this.divergence = null;
    this.inspector.clear();
    for (const pane of item.panes ?? []) this.#pane(pane.run, pane.title ?? "");
    this.#schedule();
  }

  /** Forgets everything, also what is still being unpacked. */
  clear() {
    this.feed.clear();
    this.reset({ panes: this.options.panes ?? [] });
  }

  /** @param {import("./feed.js").Item[]} items more of the list @returns {Promise<void>} */
  push(items) {
    return this.feed.push(items);
  }

  #pane(key, title) {
    let pane = this.panes.get(key);
    if (pane === undefined) {
      pane = new Pane(key, title, (run, i, by) => this.select(run, i, by));
      this.panes.set(key, pane);
      this.grid.append(pane.node);
      if (this.active === "") this.active = key;
      const [left, right] = [...this.panes.values()];
      if (right !== undefined) this.divergence = new Divergence(left.run, right.run);
    }
    return pane;
  }

  #take(key, events) {
    const { run } = this.#pane(key, "");
    for (const event of events) run.push(event);
  }

  #schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.#render();
    });
  }

  #render() {
    this.grid.classList.toggle("single", this.panes.size === 1);
    for (const pane of this.panes.values()) pane.update();
    this.#markDivergence();
    this.#applyHash(true);
    this.#stayOrBegin();
    this.#refreshBar();
    for (const [kind, node] of this.legendCounts) {
      const counts = [...this.panes.values()].map(({ run }) => (kind === "end" ? Number(run.tokens.length > 0 && run.tokens[run.tokens.length - 1].eos) : run.counts[kind]));
      node.textContent = counts.join("\u2009|\u2009");
      if (node.parentElement.classList.contains("quiet")) node.parentElement.hidden = counts.every((count) => count === 0);
    }
  }

  #markDivergence() {
    if (this.divergence === null) return;
    this.divergence.update();
    if (this.divergence.at < 0) return;
    for (const pane of this.panes.values()) {
      const i = pane.run.tokens.length === 0 ? -1 : pane.run.tokenAtByte(this.divergence.at);
      const there = i >= 0 && (pane.run.tokens[i].end > this.divergence.at || pane.run.tokens[i].eos) ? i : -1;
      if (there !== pane.strip.mark) pane.strip.divergeAt(there);
      pane.minimap.mark(undefined, there);
    }
  }

  /** Follows a live run, or opens a finished one at the first thing worth seeing. */
  #stayOrBegin() {
    const pane = this.panes.get(this.active);
    if (pane === undefined || pane.run.tokens.length === 0 || !this.follow) return;
    const { run } = pane;
    if (run.end === null || this.placed) {
      this.#show(this.active, run.tokens.length - 1, false);
      this.placed = true;
    } else {
      this.#show(this.active, run.broke >= 0 ? run.broke : run.replaced[0] ?? run.oov[0] ?? 0, false);
    }
    if (run.end !== null) this.follow = false;
  }

  // ---- choosing -------------------------------------------------------------------------------------------------

  /**
   * Chooses a token.
   * @param {string} key pane @param {number} i token @param {string} [by] who asked: "key" also moves the keyboard
   */
  select(key, i, by = "call") {
    const pane = this.panes.get(key);
    if (pane === undefined || i < 0 || i >= pane.run.tokens.length) return;
    this.follow = by === "last" && pane.run.end === null;
    this.placed = true;
    this.#show(key, i, by === "key" || by === "last");
    this.#refreshBar();
    this.#tell();
  }

  #show(key, i, focus) {
    if (key !== this.active) this.panes.get(this.active)?.strip.select(-1, false);
    this.active = key;
    this.selected = i;
    const pane = this.panes.get(key);
    const token = pane.run.tokens[i];
    for (const [other, { node, strip, minimap, run }] of this.panes) {
      node.classList.toggle("active", other === key);
      minimap.mark(other === key ? i : -1);
      if (other !== key) {
        strip.select(-1, false);
        const same = run.tokens.length > 0 && token.start <= run.length ? run.tokenAtByte(token.start) : -1;
        strip.shadow(same);
        if (same >= 0) strip.reveal(same);
      }
    }
    pane.strip.shadow(-1);
    pane.strip.select(i, focus && this.root.contains(document.activeElement));
    this.position = token.index;
    this.#inspect();
  }

  #inspect() {
    const { run } = this.panes.get(this.active);
    const token = run.tokens[this.selected];
    const window = run.windows[token.window];
    const own = token.index === this.position;
    const other = own ? -1 : run.tokenAtPosition(window, this.position);
    this.inspector.show(run, window, this.position, own ? token : other < 0 ? null : run.tokens[other]);
  }

  /** A drafted token was pressed in the inspector: its committed token, or the discarded one itself. */
  #choosePosition(index) {
    const { run } = this.panes.get(this.active);
    const window = run.windows[run.tokens[this.selected].window];
    const i = run.tokenAtPosition(window, index);
    if (i >= 0) {
      this.select(this.active, i, "figure");
    } else {
      this.position = index;
      this.#inspect();
    }
  }

  /** Tells the page and the address once the reader rests. */
  #tell() {
    clearTimeout(this.telling);
    this.telling = setTimeout(() => {
      const pane = this.panes.get(this.active);
      const token = pane?.run.tokens[this.selected];
      if (token === undefined) return;
      const place = { run: this.active, window: pane.run.windows[token.window].number, token: this.selected };
      if (this.options.link) writeHash({ trace: this.trace, ...place });
      this.options.onSelect({ ...place, index: this.selected, value: token.hex });
    }, 120);
  }

  /** Goes where the address points, once that token is there. */
  #applyHash(once = false) {
    if (!this.options.link || (once && this.placed)) return;
    const place = parseHash(location.hash);
    if (place.window === null && place.token === null) return;
    if (this.trace !== null && place.trace !== null && place.trace !== this.trace) return;
    const key = place.run !== null && this.panes.has(place.run) ? place.run : this.active;
    const run = this.panes.get(key)?.run;
    if (run === undefined) return;
    const i = place.token ?? run.byNumber.get(place.window)?.first ?? -1;
    if (i < 0 || i >= run.tokens.length) return;
    this.placed = true;
    this.follow = false;
    this.#show(key, i, false);
    this.#refreshBar();
  }

  #refreshBar() {
    const run = this.panes.get(this.active)?.run;
    const total = run === undefined ? 0 : run.tokens.length;
    this.scrubber.max = String(Math.max(0, total - 1));
    this.scrubber.value = String(Math.max(0, this.selected));
    this.scrubber.disabled = total === 0;
    const token = run?.tokens[this.selected];
    this.place.textContent = token === undefined ? "" : `token #${this.selected} of ${total} \u00b7 window #${run.windows[token.window].number} of ${run.windows.length}`;
    const broke = this.#brokeAt();
    this.brokeButton.textContent = `\u26a1 ${broke === null ? "broke here" : `${runTitle(broke.run)} broke here`}`;
    this.brokeButton.disabled = broke === null;
    this.divergeButton.disabled = this.divergence === null || this.divergence.at < 0;
    this.followButton.hidden = run === undefined || run.end !== null;
    this.followButton.setAttribute("aria-pressed", String(this.follow));
  }

  #brokeAt() {
    return [...this.panes.values()].find((pane) => pane.run.broke >= 0) ?? null;
  }

  // ---- acting ---------------------------------------------------------------------------------------------------

  #key(event) {
    if (event.defaultPrevented || isTyping(event)) return;
    if (!this.root.isConnected) {
      this.destroy();
      return;
    }
    const inside = event.target instanceof Node && this.root.contains(event.target);
    const nowhere = event.target === document.body || event.target === document.documentElement;
    if (!inside && !(nowhere && this.#takesFreeKeys())) return;
    const action = actionOf(event);
    if (action === null || (action === "close" && !this.help.open && !this.root.classList.contains("presenter"))) return;
    if (this.help.open && action !== "close" && action !== "help") return;
    if (inside) current = this;
    event.preventDefault();
    this.act(action);
  }

  #takesFreeKeys() {
    const seen = [...lenses].filter((lens) => lens.root.getClientRects().length > 0);
    return (current !== null && seen.includes(current) ? current : seen[0]) === this;
  }

  /** Does what a key or a button names. @param {string} action see keys.js */
  act(action) {
    this.tip.hide();
    const pane = this.panes.get(this.active);
    switch (action) {
      case "play":
        this.#play(this.playing === 0);
        return;
      case "help":
        if (this.help.open) this.help.close();
        else this.help.showModal();
        return;
      case "close":
        if (this.help.open) this.help.close();
        else if (this.root.classList.contains("presenter")) this.#presenter();
        return;
      case "presenter":
        this.#presenter();
        return;
      case "peek":
        this.peekButton.setAttribute("aria-pressed", String(this.root.classList.toggle("peek")));
        return;
    }
    if (pane === undefined || pane.run.tokens.length === 0) return;
    const target = this.#target(action, pane.run);
    if (target !== null) this.select(target.key, target.i, action === "last" ? "last" : "key");
  }

  /** Where an action leads; null when nowhere. @returns {{key: string, i: number}|null} */
  #target(action, run) {
    const at = this.selected;
    const here = (i) => (i < 0 ? null : { key: this.active, i: Math.min(i, run.tokens.length - 1) });
    const window = at < 0 ? 0 : run.tokens[at].window;
    switch (action) {
      case "previousToken": return here(Math.max(0, at - 1));
      case "nextToken": return here(at + 1);
      case "previousWindow": return here(this.#windowStart(run, window, -1));
      case "nextWindow": return here(this.#windowStart(run, window, 1));
      case "first": return here(0);
      case "last": return here(run.tokens.length - 1);
      case "nextOov": return here(nextIn(run.oov, at, 1));
      case "previousOov": return here(nextIn(run.oov, at < 0 ? MANY : at, -1));
      case "nextReplaced": return here(nextIn(run.replaced, at, 1));
      case "previousReplaced": return here(nextIn(run.replaced, at < 0 ? MANY : at, -1));
      case "divergence": return this.#divergenceTarget();
      case "broke": {
        const broke = this.#brokeAt();
        return broke === null ? null : { key: broke.run.key, i: broke.run.broke };
      }
      case "otherPane": return this.#otherTarget(run);
      default: return null;
    }
  }

  /** First token of the nearest window that committed something; the first token itself when already past it. */
  #windowStart(run, from, step) {
    for (let w = from + step; w >= 0 && w < run.windows.length; w += step) {
      if (run.windows[w].last > run.windows[w].first) return run.windows[w].first;
    }
    return step < 0 ? 0 : -1;
  }

  #divergenceTarget() {
    const ordered = [this.panes.get(this.active), ...this.panes.values()];
    const pane = ordered.find((p) => p.strip.mark >= 0);
    return pane === undefined ? null : { key: pane.run.key, i: pane.strip.mark };
  }

  #otherTarget(run) {
    const keys = [...this.panes.keys()];
    const other = this.panes.get(keys[(keys.indexOf(this.active) + 1) % keys.length]);
    if (other === undefined || other.run === run || other.run.tokens.length === 0) return null;
    const byte = this.selected < 0 ? 0 : run.tokens[this.selected].start;
    return { key: other.run.key, i: Math.max(0, other.run.tokenAtByte(byte)) };
  }

  #nextOfKind(kind) {
    const run = this.panes.get(this.active)?.run;
    if (run === undefined) return;
    const has = (token) => (kind === "broken" ? token.broken : kind === "end" ? token.eos : token.state === kind);
    const after = run.tokens.findIndex((token) => token.i > this.selected && has(token));
    const i = after >= 0 ? after : run.tokens.findIndex(has);
    if (i >= 0) this.select(this.active, i, "legend");
  }

  #presenter() {
    const on = this.root.classList.toggle("presenter");
    this.inspector.scale = on ? 1.5 : 1;
    this.inspector.height = 0;
    this.inspector.node.style.minHeight = "";
    if (this.selected >= 0) this.#inspect();
  }

  #play(on) {
    clearInterval(this.playing);
    this.playing = 0;
    if (on) {
      this.playing = Number(setInterval(() => {
        const run = this.panes.get(this.active)?.run;
        if (run === undefined || this.selected + 1 >= run.tokens.length) {
          if (run === undefined || run.end !== null) this.#play(false);
          return;
        }
        this.select(this.active, this.selected + 1, "play");
      }, 1000 / Number(this.speed.value)));
    }
    this.playButton.textContent = on ? "\u23f8" : "\u25b6";
    this.playButton.setAttribute("aria-label", on ? "Pause (space)" : "Play (space)");
    this.playButton.dataset.tip = on ? "Pause (space)" : "Play (space)";
  }

  /** Takes the lens off the page. */
  destroy() {
    this.#play(false);
    this.stop.abort();
    this.sizes.disconnect();
    this.classes?.disconnect();
    lenses.delete(this);
    if (current === this) current = null;
    this.root.remove();
  }
}

/** Puts a lens into an element. @param {HTMLElement} host @param {Options} options @returns {Lens} */
export function mount(host, options = {}) {
  return new Lens(host, options);
}

/**
 * Joins a lens to a page component whose `value` is an append-only list of items.
 * @param {HTMLElement} element @param {{value?: Array<Object>, can_fork?: boolean, link?: boolean}} props
 * @param {(name: string, detail: Object) => void} trigger @param {(names: string[], call: () => void) => void} watch
 * @param {(names: string[]) => Promise<Array<string|null>>} fetchPacks
 */
export function attach(element, props, trigger, watch, fetchPacks) {
  const lens = mount(element, {
    fetchPacks,
    canFork: () => props.can_fork === true,
    link: props.link === true,
    onSelect: (detail) => trigger("select", detail),
    onFork: (detail) => trigger("fork", detail),
  });
  let seen = 0;
  let view = null;
  const take = () => {
    const items = Array.isArray(props.value) ? props.value : [];
    const id = items.length > 0 ? items[0].id ?? null : null;
    if (items.length < seen || id !== view) {
      lens.clear();
      seen = 0;
      view = id;
    }
    if (items.length > seen) lens.push(items.slice(seen));
    seen = items.length;
  };
  watch(["value", "can_fork"], take);
  take();
  return lens;
}
