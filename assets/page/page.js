// The page around the lens: points of charts lead to their tokens, and a page that is loaded again knows who it was.
(() => {
  const joined = new WeakSet();
  /** @param {{points?: Array<{customdata?: unknown}>}} event */
  const go = (event) => {
    const place = event.points?.[0]?.customdata;
    if (!Array.isArray(place)) return;
    const fields = new URLSearchParams(location.hash.slice(1));
    fields.delete("window");
    fields.set("run", String(place[0]));
    fields.set("token", String(place[1]));
    location.hash = fields.toString();
    document.getElementById("lens")?.scrollIntoView({ block: "start", behavior: "smooth" });
  };
  const join = () => {
    for (const chart of /** @type {NodeListOf<any>} */ (document.querySelectorAll("#charts .js-plotly-plot"))) {
      if (joined.has(chart) || typeof chart.on !== "function") continue;
      joined.add(chart);
      chart.on("plotly_click", go);
    }
  };
  new MutationObserver(join).observe(document.documentElement, { childList: true, subtree: true });

  // The page's own name. It lies in the tab's storage only between two loadings: a copy of the tab must not take it along.
  const SHELF = "safe-lens-page";
  /** @returns {{name?: string, hash?: string|null}} */
  const left = () => {
    try {
      const held = JSON.parse(sessionStorage.getItem(SHELF) ?? "{}");
      sessionStorage.removeItem(SHELF);
      return held ?? {};
    } catch {
      return {}; // a page that may keep nothing begins anew each time
    }
  };
  const before = left();
  const fresh = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const name = before.name ?? fresh();
  /** @type {SafeLensPage} */
  const page = {
    returnTo: null,
    arrive(first) {
      if (typeof before.hash === "string") history.replaceState(history.state, "", before.hash || location.pathname + location.search);
      if (location.hash === "" && first !== "" && before.name === undefined) history.replaceState(history.state, "", first);
      return [location.hash.slice(0, 2000), name];
    },
  };
  window.SafeLensPage = page;
  window.addEventListener("pagehide", () => {
    try {
      sessionStorage.setItem(SHELF, JSON.stringify({ name, hash: page.returnTo }));
    } catch {
      // As above.
    }
  });
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) left();
  });
})();
