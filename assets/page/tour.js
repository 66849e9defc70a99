// The tour: a card that says what is to be seen, and rings around it. The lens is led by the address; the server opens the pairs.
/** @typedef {string | {term?: string, quote?: string}} Part */
/** @typedef {{trace: string, link: string, title: string, text: Part[], look: Part[], marks: string[], far: boolean}} Stop */
/** @typedef {{left: number, top: number, right: number, bottom: number}} Box */

const INVITATION = "\u25b6 Take the tour \u00b7 5 minutes";
const PATIENCE_MS = 8000; // after which a pair that did not come is asked for again
const ALIGN_MS = 3000; // for so long after a step the page keeps what is spoken about in sight
const GAP = 12;

/** @param {string} tag @param {string} name @param {string} [text] */
const make = (tag, name, text = "") => {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
};
/** @param {string} name @param {string} text @param {() => void} act @returns {HTMLButtonElement} */
const press = (name, text, act) => {
  const made = /** @type {HTMLButtonElement} */ (make("button", name, text));
  made.type = "button";
  made.addEventListener("click", act);
  return made;
};
/** @param {HTMLElement} host @param {Part[]} parts */
const fill = (host, parts) => {
  host.replaceChildren(...parts.map((part) => {
    if (typeof part === "string") return part;
    return part.term === undefined ? make("span", "sl-tour-quote", part.quote) : make("dfn", "", part.term);
  }));
};
/** @returns {HTMLElement|null} */
const lens = () => document.querySelector("#lens .safe-lens");
const asked = () => new URLSearchParams(location.hash.slice(1));
/** @param {string} hash */
const goTo = (hash) => {
  history.replaceState(history.state, "", hash === "" ? location.pathname + location.search : hash);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
};

const card = make("section", "sl-tour");
card.setAttribute("role", "dialog");
card.setAttribute("aria-label", "Tour");
const count = make("span", "sl-tour-count");
const title = make("h2", "sl-tour-title");
title.tabIndex = -1;
const words = make("p", "sl-tour-text");
const look = make("p", "sl-tour-look");
const rings = make("div", "sl-tour-rings");
rings.setAttribute("aria-hidden", "true");
const back = press("sl-tour-back", "Back", () => step(-1));
const next = press("sl-tour-next", "Next", () => step(1));
const end = press("sl-tour-end", "End", () => leave());
const foot = make("div", "sl-tour-foot");
const head = make("div", "sl-tour-head");
head.append(count, title, end);
foot.append(make("span", "sl-tour-keys", "n next \u00b7 N back \u00b7 Esc end \u00b7 p large type"), back, next);
const body = make("div", "sl-tour-body");
body.tabIndex = 0; // so that the keyboard can scroll it
body.append(words, look);
card.append(head, body, foot);
const start = press("sl-tour-start", INVITATION, () => begin());

let at = -1; // the stop on show; -1 while there is no tour
let wanted = ""; // trace the server is asked for and has not given yet
let askedAt = 0;
let steppedAt = 0;
let touched = false; // the reader scrolled since the last step
let leaving = false; // the reader left while a pair was on its way
let timer = 0;
let was = { hash: "", top: 0 };

/** @returns {Stop[]} */
const stops = () => props.value?.stops ?? [];

function begin() {
  if (at >= 0) return;
  was = { hash: location.hash, top: window.scrollY };
  leaving = false;
  window.SafeLensPage.returnTo = was.hash;
  start.disabled = true;
  start.textContent = "Opening the tour \u2026";
  trigger("begin", {});
}

/** @param {number} by */
function step(by) {
  if (at < 0) return;
  if (at + by >= stops().length) leave();
  else show(Math.max(0, at + by));
}

/** @param {number} k */
function show(k) {
  const stop = stops()[k];
  if (stop === undefined) return;
  at = k;
  count.textContent = `${k + 1} of ${stops().length}`;
  title.textContent = stop.title;
  fill(words, stop.text);
  fill(look, [{ term: "Look at:" }, " ", ...stop.look]);
  back.disabled = k === 0;
  next.textContent = k + 1 === stops().length ? "Done" : "Next";
  if (!card.isConnected) document.body.append(rings, card);
  document.body.classList.add("sl-touring");
  steppedAt = Date.now();
  touched = false;
  document.body.classList.remove("sl-pointing");
  body.scrollTop = 0;
  if (asked().get("trace") !== stop.trace || wanted !== "") open(stop);
  goTo(stop.link);
  title.focus({ preventScroll: true });
  if (timer === 0) timer = window.setInterval(tick, 100);
  tick();
}

/** One request at a time, so that what is asked last comes last. @param {Stop} stop */
function open(stop) {
  const waits = wanted !== "" && Date.now() - askedAt < PATIENCE_MS;
  wanted = stop.trace;
  if (waits) return;
  askedAt = Date.now();
  trigger("open", { trace: stop.trace });
}

/** Ends the tour. @param {boolean} [restore] whether what was on the page before comes back */
function leave(restore = true) {
  at = -1;
  window.SafeLensPage.returnTo = null;
  leaving = restore && wanted !== "" && Date.now() - askedAt < PATIENCE_MS;
  wanted = "";
  window.clearInterval(timer);
  timer = 0;
  card.remove();
  rings.remove();
  document.body.classList.remove("sl-touring");
  if (!restore) return;
  goTo(was.hash);
  if (!leaving) trigger("leave", {});
  window.scrollTo({ top: was.top });
  start.focus({ preventScroll: true });
}

function tick() {
  const host = lens();
  const stop = stops()[at];
  if (host === null || stop === undefined) return;
  card.classList.toggle("large", host.classList.contains("presenter"));
  document.body.style.setProperty("--sl-tour-room", `${card.offsetHeight + 2 * GAP}px`);
  if (wanted === "" && asked().get("trace") !== stop.trace) leave(false); // the reader opened or ran something else
  else if (wanted !== "" && Date.now() - askedAt > PATIENCE_MS) open(stop);
  else ring(host, stop);
}

/** Draws the rings where the lens stands at the stop's place, and brings them into sight. @param {HTMLElement} host @param {Stop} stop */
function ring(host, stop) {
  const place = new URLSearchParams(stop.link.slice(1));
  const here = wanted === "" && host.querySelector(`.pane.active[data-run="${place.get("run")}"]`) !== null
    && (host.querySelector(".place")?.textContent ?? "").startsWith(`token #${place.get("token")} of`);
  const boxes = here ? stop.marks.flatMap((mark) => united([...host.querySelectorAll(mark)].map(seen))) : [];
  while (rings.childElementCount < boxes.length) rings.append(make("div", "sl-tour-ring"));
  while (rings.childElementCount > boxes.length) rings.lastElementChild?.remove();
  boxes.forEach((box, k) => {
    const { style } = /** @type {HTMLElement} */ (rings.children[k]);
    [style.left, style.top] = [`${box.left - 5}px`, `${box.top - 5}px`];
    [style.width, style.height] = [`${box.right - box.left + 10}px`, `${box.bottom - box.top + 10}px`];
  });
  const [all] = united(boxes);
  if (all === undefined || touched || Date.now() - steppedAt >= ALIGN_MS) return;
  align(host, all);
  if (stop.far) for (const part of host.querySelectorAll(stop.marks.join())) part.scrollLeft = part.scrollWidth;
}

/** Scrolls what is spoken about between the lens's legend and the card. @param {HTMLElement} host @param {Box} box */
function align(host, box) {
  const over = host.querySelector(host.classList.contains("narrow") ? ".legend" : ".top");
  const from = (over instanceof HTMLElement ? over.offsetHeight : 0) + GAP;
  const to = card.getBoundingClientRect().top - GAP;
  const aim = from + Math.max(0, (to - from - (box.bottom - box.top)) / 2);
  const fits = box.top >= from - 1 && box.bottom <= to + 1;
  const by = box.top - aim;
  if (fits || Math.abs(by) < 2) return;
  (host.classList.contains("presenter") ? host : window).scrollBy({ top: by, behavior: "instant" });
}

/** The part of an element that its scrolling frame shows. @param {Element} element @returns {Box} */
function seen(element) {
  const { left, top, right, bottom } = element.getBoundingClientRect();
  const frame = element.parentElement?.closest(".scroller, .strip")?.getBoundingClientRect();
  if (frame === undefined) return { left, top, right, bottom };
  return { left: Math.max(left, frame.left), top: Math.max(top, frame.top), right: Math.min(right, frame.right), bottom: Math.min(bottom, frame.bottom) };
}

/** The box around all boxes that can be seen; none for none. @param {Box[]} boxes @returns {Box[]} */
function united(boxes) {
  const some = boxes.filter((box) => box.right > box.left && box.bottom > box.top);
  if (some.length === 0) return [];
  return [{
    left: Math.min(...some.map((b) => b.left)), top: Math.min(...some.map((b) => b.top)),
    right: Math.max(...some.map((b) => b.right)), bottom: Math.max(...some.map((b) => b.bottom)),
  }];
}

/** n and N step, Escape ends; every other key is the lens's, also while the card has the keyboard. @param {KeyboardEvent} event */
function key(event) {
  const target = event.target;
  if (at < 0 || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null) return;
  if (target instanceof Element && target.closest("input, textarea, select, [contenteditable=true]") !== null) return;
  const act = { n: () => step(1), N: () => step(-1), Escape: () => leave() }[event.key];
  if (act !== undefined && !(event.key === "Escape" && lens()?.classList.contains("presenter"))) {
    event.preventDefault();
    event.stopPropagation();
    act();
  } else if (target instanceof Node && card.contains(target) && !["Tab", "Enter", " ", "Shift"].includes(event.key)) {
    event.preventDefault();
    event.stopPropagation();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: event.key, shiftKey: event.shiftKey, bubbles: true, cancelable: true }));
  }
}

function draw() {
  const { offered = false, stops: list = [], opened = null } = props.value ?? {};
  element.hidden = !offered;
  if (opened !== null && leaving) {
    leaving = false;
    trigger("leave", {});
  } else if (opened !== null && wanted !== "") {
    const now = stops()[at];
    wanted = "";
    if (now !== undefined && now.trace !== opened) open(now);
  }
  if (!start.disabled) return;
  start.disabled = false;
  start.textContent = INVITATION;
  if (list.length > 0) show(0);
}

element.replaceChildren(start);
window.addEventListener("keydown", key, true);
for (const kind of ["wheel", "touchmove", "pointerdown"]) {
  window.addEventListener(kind, (event) => {
    touched ||= !(event.target instanceof Node && card.contains(event.target));
  }, { passive: true });
}
window.addEventListener("pointermove", (event) => {
  if (event.movementX !== 0 || event.movementY !== 0) document.body.classList.add("sl-pointing");
}, { passive: true });
watch("value", draw);
draw();
