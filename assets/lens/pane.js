// One run on the page: title, numbers, minimap and strip.

import { el } from "./dom.js";
import { Minimap } from "./minimap.js";
import { formatStat, shortName, STATS } from "./sentences.js";
import { Strip } from "./strip.js";
import { Run } from "./trace-model.js";

const METHODS = { safe: "SAFE", unite: "UniTE", gac: "GaC", single: "alone" };
const REASONS = { eos: "ended by the model", length: "reached the token limit", stop: "stopped at a stop string", cancelled: "stopped", error: "failed" };

/** What a person calls a run. @param {Run} run */
export function runTitle(run) {
  if (run.title !== "") return run.title;
  if (run.start === null) return run.key;
  const method = METHODS[run.start.method];
  if (run.start.method === "single") return `${shortName(run.models[0].name)} alone`;
  return run.start.method === "safe" && run.start.ensemble === "gac" ? "GaC + SAFE" : method;
}

/** A run with everything that shows it. */
export class Pane {
  /** @param {string} key @param {string} title @param {(key: string, i: number, by: string) => void} choose */
  constructor(key, title, choose) {
    this.run = new Run(key, title);
    this.node = el("section", "pane");
    this.node.dataset.run = key;
    this.title = el("h2", "pane-title");
    this.models = el("span", "pane-models");
    this.status = el("span", "pane-status", "", { role: "status" });
    const head = el("div", "pane-head");
    head.append(this.title, this.models, this.status);
    this.prompt = el("p", "prompt", "", { dir: "auto" });
    this.stats = el("div", "stats");
    this.values = STATS.map(({ key: stat, name, help }) => this.#stat(stat, name, help));
    this.strip = new Strip({ onToken: (i, by) => choose(key, i, by) }, "Response tokens");
    this.minimap = new Minimap((i) => choose(key, i, "map"));
    this.empty = el("p", "empty");
    this.strip.clear(this.run);
    this.minimap.run = this.run;
    const frame = el("div", "strip-frame");
    frame.append(this.strip.node, this.empty);
    this.node.append(head, this.prompt, this.stats, this.minimap.node, frame);
  }

  /** @param {(typeof STATS)[number]["key"]} key @param {string} name @param {string} help */
  #stat(key, name, help) {
    const node = el("button", "stat", "", { type: "button", "aria-label": `${name}: ${help}` });
    node.dataset.tip = help;
    const value = el("b", "", "\u2013");
    node.append(value, el("span", "", name));
    this.stats.append(node);
    return { key, value };
  }

  /** Draws what changed. */
  update() {
    const { run } = this;
    this.title.textContent = runTitle(run);
    this.models.textContent = run.models.map((model) => shortName(model.name)).join(" + ");
    this.models.title = run.models.map((model) => `${model.name} (${model.role})`).join(", ");
    this.node.classList.toggle("every", run.everyToken);
    this.prompt.textContent = run.start === null ? "" : run.start.prompt;
    this.prompt.hidden = run.start === null;
    const stats = run.stats();
    for (const { key, value } of this.values) {
      value.textContent = formatStat(key, stats[key]);
      if (stats[key] !== null) value.title = String(stats[key]);
    }
    this.status.textContent = this.#status();
    this.strip.update();
    this.empty.textContent = run.tokens.length > 0 ? "" : run.end === null ? "Waiting for the first token\u2026" : "The response is empty.";
    this.empty.hidden = run.tokens.length > 0;
    this.minimap.update();
  }

  #status() {
    const { run } = this;
    if (run.end === null) return run.start === null ? "" : "running";
    return run.end.error ? `failed: ${run.end.error}` : REASONS[run.end.reason];
  }
}
