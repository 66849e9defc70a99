// The lens: panes, legend, steps and inspector put together over one list of trace events.

import { Bar, helpBox } from "./bar.js";
import { el, tooltip } from "./dom.js";
import { Feed } from "./feed.js";
import { parseHash, writeHash } from "./hash.js";
import { Inspector } from "./inspector.js";
import { actionOf, isTyping } from "./keys.js";
import { Pane, runTitle } from "./pane.js";
import { Divergence, nextIn } from "./trace-model.js";

/** @import { FetchPacks } from "./feed.js" */
/** @import { Run } from "./trace-model.js" */
/** @import { ForkWish, Fusion, Item, PaneInfo, Selected, State, Tok, TraceEvent } from "./types.d.ts" */

/**
 * @typedef {Object} Options
 * @property {PaneInfo[]} [panes]
 * @property {() => boolean} [canFork]         whether candidates offer to continue from them
 * @property {(detail: Selected) => void} [onSelect] told after the reader chose
 * @property {(detail: ForkWish) => void} [onFork]
 * @property {FetchPacks} [fetchPacks]         gets packs of events the server holds
 * @property {"page"|"system"} [theme]         follow the page's `dark` class, or the system with a switch of its own
 * @property {boolean} [link]                  whether the place is kept in the address
 */

const MANY = 1e9;
const DARK = window.matchMedia("(prefers-color-scheme: dark)");
/** @type {Set<Lens>} */
const lenses = new Set();
/** @type {Lens|null} The one that takes keys when nothing has the keyboard. */
let current = null;

/** A mounted lens. */
export class Lens {
  /** @param {HTMLElement} host @param {Options} options */
  constructor(host, options = {}) {
    /** @type {Options & Required<Pick<Options, "canFork"|"onSelect"|"onFork"|"theme"|"link">>} */
    this.options = { canFork: () => false, onSelect: () => {}, onFork: () => {}, theme: "page", link: false, ...options };
    this.root = el("div", "safe-lens");
    this.root.dir = "ltr";
    /** @type {Map<string, Pane>} */
    this.panes = new Map();
    /** @type {string|null} its name in links */
    this.trace = null;
    this.active = "";
    this.selected = -1;
    /** Draft position that the inspector shows. */
    this.position = 0;
    this.follow = true;
    /** Whether the place in the run was chosen, by the reader, a link or an earlier look. */
    this.placed = false;
    this.playing = 0;
    this.telling = 0;
    this.scheduled = false;
    /** @type {Divergence|null} */
    this.divergence = null;
    /** @type {"light"|"dark"|null} */
    this.chosenTheme = null;
    this.stop = new AbortController();
    this.feed = new Feed({
      reset: (item) => this.reset(item),
      events: (run, events) => this.#take(run, events),
      done: () => this.#schedule(),
      lost: (words) => {
        this.notice.textContent = words;
      },
    }, this.options.fetchPacks);
    this.inspector = new Inspector({
      onToken: (index) => this.#choosePosition(index),
      onFork: (wish) => this.options.onFork(wish),
      canFork: () => this.options.canFork(),
      title: runTitle,
      complete: (fusion) => this.#complete(fusion),
    });
    this.bar = new Bar({
      act: (action) => this.act(action),
      seek: (i) => this.select(this.active, i, "scrub"),
      pace: () => {
        if (this.playing !== 0) this.#play(true);
      },
      nextOfKind: (kind) => this.#nextOfKind(kind),
      switchTheme: this.options.theme === "system" ? () => this.#switchTheme() : null,
    });
    this.grid = el("div", "panes");
    this.help = helpBox();
    this.notice = el("p", "notice", "", { role: "alert" });
    this.root.append(this.bar.node, this.notice, this.grid, this.inspector.node, this.help);
    this.tip = tooltip(this.root);
    this.sizes = new ResizeObserver(() => {
      this.root.classList.toggle("narrow", this.root.clientWidth < 720);
      this.inspector.resize();
      if (this.selected >= 0) this.#inspect();
    });
    this.classes = new MutationObserver(() => this.#applyTheme());
    host.replaceChildren(this.root);
    this.#listen();
    this.#watchTheme();
    this.reset({ panes: this.options.panes ?? [] });
    lenses.add(this);
    current = this;
  }

  // ---- building -------------------------------------------------------------------------------------------------

  #listen() {
    const signal = this.stop.signal;
    document.addEventListener("keydown", (event) => this.#key(event), { signal });
    this.root.addEventListener("pointerdown", () => {
      current = this;
    }, { signal });
    window.addEventListener("hashchange", () => this.#applyHash(), { signal });
    this.sizes.observe(this.root);
  }

  // ---- theme ----------------------------------------------------------------------------------------------------

  #watchTheme() {
    DARK.addEventListener("change", () => this.#applyTheme(), { signal: this.stop.signal });
    if (this.options.theme === "page") {
      for (const node of [document.body, document.documentElement]) this.classes.observe(node, { attributes: true, attributeFilter: ["class"] });
    }
    this.#applyTheme();
  }

  #applyTheme() {
    const system = this.options.theme === "system";
    const pages = () => [document.body, document.documentElement].some((node) => node.classList.contains("dark"));
    const dark = system ? (this.chosenTheme === null ? DARK.matches : this.chosenTheme === "dark") : pages();
    this.root.dataset.theme = dark ? "dark" : "light";
    if (system) document.documentElement.dataset.theme = this.root.dataset.theme;
    for (const pane of this.panes.values()) pane.minimap.update();
  }

  #switchTheme() {
    this.chosenTheme = this.root.dataset.theme === "dark" ? "light" : "dark";
    this.#applyTheme();
  }

  // ---- data -----------------------------------------------------------------------------------------------------

  /** Starts a new view. @param {Item} item */
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

  /** @param {Item[]} items more of the list @returns {Promise<void>} */
  push(items) {
    return this.feed.push(items);
  }

  /** The pane of a run, made when there is none. @param {string} key @param {string} title */
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

  /** @param {string} key @param {TraceEvent[]} events */
  #take(key, events) {
    const { run } = this.#pane(key, "");
    for (const event of events) run.push(event);
  }

  /** Gets the candidates of a fusion that were left out; whether they came. @param {Fusion} fusion */
  async #complete(fusion) {
    const events = fusion.ref === undefined ? null : await this.feed.whole(fusion.ref);
    const whole = events?.find((event) => event.event === "ensemble" && event.window === fusion.window && event.index === fusion.index);
    if (whole?.event !== "ensemble") return false;
    fusion.candidates = whole.candidates;
    delete fusion.of;
    return true;
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
    for (const { run, strip } of this.#shadow()) if (run.end !== null) strip.reveal(strip.peer); // came whole, behind the other
    this.#refreshBar();
    const runs = [...this.panes.values()].map(({ run }) => run);
    for (const kind of this.bar.kinds.keys()) this.bar.count(kind, runs.map((run) => countOf(run, kind)));
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
    if (this.#run()?.end !== null && this.#run()?.tokens.length === 0) {
      const other = [...this.panes.values()].find((pane) => pane.run.tokens.length > 0); // an empty response cannot be stepped through
      if (other !== undefined) this.active = other.run.key;
    }
    const run = this.#run();
    if (run === undefined || run.tokens.length === 0 || !this.follow) return;
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

  /** @param {string} key @param {number} i @param {boolean} focus whether the keyboard goes along */
  #show(key, i, focus) {
    const pane = this.panes.get(key);
    if (pane === undefined) return;
    this.active = key;
    this.selected = i;
    const token = pane.run.tokens[i];
    for (const [other, { node, strip, minimap }] of this.panes) {
      node.classList.toggle("active", other === key);
      minimap.mark(other === key ? i : -1);
      strip.select(other === key ? i : -1);
    }
    this.#shadow();
    for (const { strip } of this.panes.values()) strip.reveal(strip === pane.strip ? i : strip.peer); // asks for places: after all writing
    if (focus && this.root.contains(document.activeElement)) pane.strip.focus();
    this.position = token.index;
    this.#inspect();
  }

  /** Marks the token of every other run that holds the same byte as the chosen one. @returns {Pane[]} those that had no mark */
  #shadow() {
    const token = this.#run()?.tokens[this.selected];
    /** @type {Pane[]} */
    const fresh = [];
    for (const [key, pane] of this.panes) {
      const { strip, run } = pane;
      const there = token !== undefined && key !== this.active && run.tokens.length > 0 && token.start <= run.length;
      const before = strip.peer;
      strip.shadow(there ? run.tokenAtByte(token.start) : -1);
      if (before < 0 && strip.peer >= 0) fresh.push(pane);
    }
    return fresh;
  }

  #inspect() {
    const run = this.#run();
    const token = run?.tokens[this.selected];
    if (run === undefined || token === undefined) return;
    const window = run.windows[token.window];
    const own = token.index === this.position;
    const other = own ? -1 : run.tokenAtPosition(window, this.position);
    this.inspector.show(run, window, this.position, own ? token : other < 0 ? null : run.tokens[other]);
  }

  /** The run that is stepped through. */
  #run() {
    return this.panes.get(this.active)?.run;
  }

  /** A drafted token was pressed in the inspector: its committed token, or the discarded one itself. @param {number} index */
  #choosePosition(index) {
    const run = this.#run();
    const token = run?.tokens[this.selected];
    if (run === undefined || token === undefined) return;
    const i = run.tokenAtPosition(run.windows[token.window], index);
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
    this.telling = window.setTimeout(() => {
      const run = this.#run();
      const token = run?.tokens[this.selected];
      if (run === undefined || token === undefined) return;
      const place = { run: this.active, window: run.windows[token.window].number, token: this.selected };
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
    const i = place.token ?? (place.window === null ? undefined : run.byNumber.get(place.window)?.first) ?? -1;
    if (i < 0 || i >= run.tokens.length) return;
    this.placed = true;
    this.follow = false;
    this.#show(key, i, false);
    this.#refreshBar();
  }

  #refreshBar() {
    const { bar } = this;
    const run = this.#run();
    const total = run === undefined ? 0 : run.tokens.length;
    bar.scrubber.max = String(Math.max(0, total - 1));
    bar.scrubber.value = String(Math.max(0, this.selected));
    bar.scrubber.disabled = total === 0;
    const token = run?.tokens[this.selected];
    bar.place.textContent = run === undefined || token === undefined ? "" : `token #${this.selected} of ${total} \u00b7 window #${run.windows[token.window].number} of ${run.windows.length}`;
    const broke = this.#brokeAt();
    bar.brokeButton.textContent = `\u26a1 ${broke === null ? "broke here" : `${runTitle(broke.run)} broke here`}`;
    bar.brokeButton.disabled = broke === null;
    bar.divergeButton.disabled = this.divergence === null || this.divergence.at < 0;
    bar.followButton.hidden = run === undefined || run.end !== null;
    bar.followButton.setAttribute("aria-pressed", String(this.follow));
  }

  #brokeAt() {
    return [...this.panes.values()].find((pane) => pane.run.broke >= 0) ?? null;
  }

  // ---- acting ---------------------------------------------------------------------------------------------------

  /** @param {KeyboardEvent} event */
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
        this.bar.peekButton.setAttribute("aria-pressed", String(this.root.classList.toggle("peek")));
        return;
    }
    if (pane === undefined || pane.run.tokens.length === 0) return;
    const target = this.#target(action, pane.run);
    if (target !== null) this.select(target.key, target.i, action === "last" ? "last" : "key");
  }

  /** Where an action leads; null when nowhere. @param {string} action @param {Run} run @returns {{key: string, i: number}|null} */
  #target(action, run) {
    const at = this.selected;
    const here = (/** @type {number} */ i) => (i < 0 ? null : { key: this.active, i: Math.min(i, run.tokens.length - 1) });
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

  /** First token of the nearest window that committed something; the first token itself when already past it. @param {Run} run @param {number} from @param {1|-1} step */
  #windowStart(run, from, step) {
    for (let w = from + step; w >= 0 && w < run.windows.length; w += step) {
      if (run.windows[w].last > run.windows[w].first) return run.windows[w].first;
    }
    return step < 0 ? 0 : -1;
  }

  #divergenceTarget() {
    const ordered = [this.panes.get(this.active), ...this.panes.values()];
    const pane = ordered.find((p) => p !== undefined && p.strip.mark >= 0);
    return pane === undefined ? null : { key: pane.run.key, i: pane.strip.mark };
  }

  /** @param {Run} run */
  #otherTarget(run) {
    const keys = [...this.panes.keys()];
    const other = this.panes.get(keys[(keys.indexOf(this.active) + 1) % keys.length]);
    if (other === undefined || other.run === run || other.run.tokens.length === 0) return null;
    const byte = this.selected < 0 ? 0 : run.tokens[this.selected].start;
    return { key: other.run.key, i: Math.max(0, other.run.tokenAtByte(byte)) };
  }

  /** @param {string} kind of the legend */
  #nextOfKind(kind) {
    const run = this.#run();
    if (run === undefined) return;
    const has = (/** @type {Tok} */ token) => (kind === "broken" ? token.broken : kind === "end" ? token.eos : token.state === kind);
    const after = run.tokens.findIndex((token) => token.i > this.selected && has(token));
    const i = after >= 0 ? after : run.tokens.findIndex(has);
    if (i >= 0) this.select(this.active, i, "legend");
  }

  #presenter() {
    const on = this.root.classList.toggle("presenter");
    this.inspector.scale = on ? 1.5 : 1;
    this.inspector.resize();
    this.inspector.shrink();
    if (this.selected >= 0) this.#inspect();
  }

  /** @param {boolean} on */
  #play(on) {
    clearInterval(this.playing);
    this.playing = 0;
    if (on) {
      this.playing = window.setInterval(() => {
        const run = this.#run();
        if (run === undefined || this.selected + 1 >= run.tokens.length) {
          if (run === undefined || run.end !== null) this.#play(false);
          return;
        }
        this.select(this.active, this.selected + 1, "play");
      }, 1000 / Number(this.bar.speed.value));
    }
    this.bar.playing(on);
  }

  /** Takes the lens off the page. */
  destroy() {
    this.#play(false);
    this.stop.abort();
    this.sizes.disconnect();
    this.classes.disconnect();
    lenses.delete(this);
    if (current === this) current = null;
    this.root.remove();
  }
}

/** How many tokens of a kind of the legend a run has. @param {Run} run @param {string} kind */
function countOf(run, kind) {
  if (kind === "end") return Number(run.tokens.at(-1)?.eos === true);
  return run.counts[/** @type {State|"broken"} */ (kind)];
}

/** Puts a lens into an element. @param {HTMLElement} host @param {Options} options @returns {Lens} */
export function mount(host, options = {}) {
  return new Lens(host, options);
}

/**
 * Joins a lens to a page component whose `value` is an append-only list of items.
 * @param {HTMLElement} element @param {{value?: Item[], can_fork?: boolean, link?: boolean}} props
 * @param {(name: string, detail: Selected|ForkWish) => void} trigger @param {(names: string[], call: () => void) => void} watch
 * @param {FetchPacks} fetchPacks
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
  /** @type {string|null} */
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
