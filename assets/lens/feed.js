// What the page hands to the lens: an append-only list of items, in order.

/**
 * `reset` starts a new view (`panes` name its runs, `trace` is its name in links); `event` is one trace event of a run;
 * `gz` is several of them: base64 of gzip of a JSON list; `ref` is the name under which the server holds such a pack.
 * @typedef {{reset?: true, id?: string, panes?: Array<{run: string, title?: string}>, trace?: string,
 *            run?: string, event?: Object, gz?: string, ref?: string}} Item
 */

/** @param {string} base64 @returns {Promise<Object[]>} */
export async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Takes items in order, unpacking some, and hands on a list at a time. */
export class Feed {
  /**
   * @param {{reset: (item: Item) => void, events: (run: string, events: Object[]) => void, done: () => void, lost: (words: string) => void}} sink
   * @param {(names: string[]) => Promise<Array<string|null>>} [fetchPacks] gets packs the server holds
   */
  constructor(sink, fetchPacks = async (names) => names.map(() => null)) {
    this.sink = sink;
    this.fetchPacks = fetchPacks;
    /** @type {Promise<void>} */
    this.last = Promise.resolve();
    this.generation = 0;
  }

  /** Forgets what is still waiting. */
  clear() {
    this.generation += 1;
  }

  /** @param {Item[]} items @returns {Promise<void>} when they have been handed on */
  push(items) {
    const generation = this.generation;
    const fetched = this.#fetch(items.flatMap((item) => (item.ref === undefined ? [] : [item.ref])));
    this.last = this.last.then(async () => {
      const packs = await fetched;
      for (const item of items) {
        const pack = item.gz ?? packs.get(item.ref) ?? null;
        const events = pack === null ? [] : await unpack(pack);
        if (generation !== this.generation) return;
        if (item.ref !== undefined && pack === null) this.sink.lost("Events of this run are no longer held by the server. Open its trace again to see all of it.");
        this.#take(item, events);
      }
      this.sink.done();
    });
    return this.last;
  }

  /** @returns {Promise<Map<string, string|null>>} */
  async #fetch(names) {
    if (names.length === 0) return new Map();
    const packs = await this.fetchPacks(names).catch(() => names.map(() => null));
    return new Map(names.map((name, k) => [name, packs[k]]));
  }

  #take(item, events) {
    if (item.reset === true) this.sink.reset(item);
    else if (item.event !== undefined) this.sink.events(item.run, [item.event]);
    else if (item.gz !== undefined || item.ref !== undefined) this.sink.events(item.run, events);
  }
}
