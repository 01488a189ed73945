// Tables of claims and of measurements: sort, search, and buttons that filter by what the rows say of themselves.
// The tables are whole in the page; without this script they are read as they stand. Nothing is fetched.
// The address keeps the filter (#verdict=did-not-hold&chapter=polytopes, #all for none), and #row-… leads to a row
// whatever is hidden. Without any the scoreboard opens on what did not simply hold, until somebody searches.
(() => {
  "use strict";

  const FACETS = ["verdict", "chapter", "kind", "needs"];
  const NAMES = { needs: "needs data", ours: "our finding" };
  const OPENING = ["did-not-hold", "held-in-part", "undecided"];
  const make = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };

  const enhance = (table, more = {}) =>
    new window.DataTable(table, {
      paging: false,
      order: [],
      autoWidth: false,
      layout: { topStart: "info", topEnd: "search", bottomStart: null, bottomEnd: null },
      language: { search: "Search ", info: "_TOTAL_ rows", infoFiltered: " of _MAX_", infoEmpty: "No row", zeroRecords: "No row is left." },
      ...more,
    });

  const title = (rows, chapter) => rows.find((row) => row.dataset.chapter === chapter).dataset.title;
  const place = (rows, kind) => rows.find((row) => row.dataset.kind === kind).dataset.place;
  const values = (row, facet) => (row.dataset[facet] ?? "").split(",");

  // Buttons for the values of each facet: none pressed shows all, several of one facet are alternatives.
  const filters = (table, rows, chosen, choose, searched, clear) => {
    const box = make("div", { className: "table-filters" });
    const buttons = [];
    for (const facet of FACETS) {
      const found = new Map();
      for (const row of rows)
        for (const value of values(row, facet)) found.set(value, (found.get(value) ?? 0) + 1);
      if (found.size < 2) continue;
      const group = make("div", { role: "group", ariaLabel: NAMES[facet] ?? facet });
      group.append(make("span", { className: "facet", textContent: NAMES[facet] ?? facet }));
      const listed = [...found];
      if (facet === "chapter") listed.sort(([one], [other]) => title(rows, one).localeCompare(title(rows, other)));
      if (facet === "kind") listed.sort(([one], [other]) => place(rows, one) - place(rows, other));
      for (const [value, number] of listed) {
        const first = rows.find((row) => values(row, facet).includes(value));
        const sign = first.querySelector(".verdict-sign").textContent;
        const words = { chapter: first.dataset.title, verdict: `${sign} ${value.replaceAll("-", " ")}` };
        const text = words[facet] ?? NAMES[value] ?? value;
        const button = make("button", { type: "button" }, `${text} `, make("small", { textContent: number }));
        button.addEventListener("click", () => choose(facet, value));
        buttons.push([button, facet, value]);
        group.append(button);
      }
      box.append(group);
    }
    const all = make("button", { type: "button", className: "all", textContent: "show all" });
    all.addEventListener("click", clear);
    box.append(all);
    const fold = make("details", { className: "filters" }, make("summary", { textContent: "Filters" }), box);
    fold.open = window.matchMedia("(min-width: 601px)").matches;
    table.closest(".claims-box").before(fold);
    return () => {
      for (const [button, facet, value] of buttons) button.ariaPressed = String(chosen[facet].has(value));
      all.disabled = !searched() && FACETS.every((facet) => !chosen[facet].size);
    };
  };

  const claims = (table) => {
    const rows = [...table.querySelectorAll("tbody tr")];
    const chosen = Object.fromEntries(FACETS.map((facet) => [facet, new Set()]));
    const opening = new Set(OPENING.filter((verdict) => rows.some((row) => row.dataset.verdict === verdict)));
    let opened = false; // nobody has chosen anything so far
    const told = (settings, start, end, all, left) =>
      `${all} claims; ${left === all ? "all are shown" : opened ? `shown: the ${left} that did not simply hold` : `shown: ${left}`}.`;
    const shown = enhance(table, { infoCallback: told });
    let press = () => {};

    const draw = () => {
      press();
      shown.draw();
    };
    const write = () => {
      if (opened) return;
      const asked = new URLSearchParams();
      for (const facet of FACETS) if (chosen[facet].size) asked.set(facet, [...chosen[facet]].join(","));
      if (shown.search()) asked.set("search", shown.search());
      const hash = decodeURIComponent(asked.toString());
      history.replaceState(null, "", `#${hash || "all"}`);
    };
    const clear = () => {
      for (const facet of FACETS) chosen[facet].clear();
      opened = false;
      shown.search("");
      draw();
      write();
    };
    const read = (first = false) => {
      const hash = decodeURIComponent(location.hash.slice(1));
      const row = hash.startsWith("row-") && rows.find((one) => one.id === hash);
      const asked = new URLSearchParams(row ? "" : hash);
      const asks = row || hash === "all" || [...FACETS, "search"].some((name) => asked.has(name));
      if (hash && !asks && !first) return; // some other place of the page
      for (const facet of FACETS) chosen[facet] = new Set((asked.get(facet) ?? "").split(",").filter(Boolean));
      opened = !asks && opening.size > 0;
      if (opened) chosen.verdict = new Set(opening);
      shown.search(asked.get("search") ?? "");
      draw();
      if (row) {
        row.querySelector("details").open = true;
        row.scrollIntoView({ block: "center" });
      }
    };

    shown.search.fixed("facets", (text, data, index) => {
      const row = shown.row(index).node();
      return FACETS.every((facet) => !chosen[facet].size || values(row, facet).some((one) => chosen[facet].has(one)));
    });
    const choose = (facet, value) => {
      if (opened && facet === "verdict") chosen.verdict.clear();
      chosen[facet].has(value) ? chosen[facet].delete(value) : chosen[facet].add(value);
      opened = false;
      draw();
      write();
    };
    press = filters(table, rows, chosen, choose, () => shown.search(), clear);
    const search = shown.table().container().querySelector(".dt-search");
    search.addEventListener("input", () => {
      if (opened) chosen.verdict.clear();
      opened = false;
    }, true);
    shown.on("search", () => {
      if (!rows.some((row) => location.hash === `#${row.id}`)) write();
      press();
    });
    window.addEventListener("hashchange", () => read());
    read(true);
  };

  // The table of verdicts that a chapter's ledger writes: it opens on what was not simply held.
  const verdicts = (table, at) => {
    const rows = [...table.querySelectorAll("tbody tr")];
    const told = (row) => row.children[at].textContent.trim().replace(/\s*\(.*$/, "");
    const kinds = [...new Set(rows.map(told))];
    if (kinds.length < 2) return;
    const box = make("div", { className: "table-filters", role: "group", ariaLabel: "verdict" });
    const choices = [["all", () => true], ["all but held", (kind) => !kind.startsWith("✓")], ...kinds.map((kind) => [kind, (one) => one === kind])];
    const buttons = choices.map(([name, fits]) => {
      const number = rows.filter((row) => fits(told(row))).length;
      const button = make("button", { type: "button" }, `${name} `, make("small", { textContent: number }));
      button.addEventListener("click", () => show(button, fits));
      box.append(button);
      return button;
    });
    const show = (pressed, fits) => {
      for (const row of rows) row.hidden = !fits(told(row));
      for (const button of buttons) button.ariaPressed = String(button === pressed);
    };
    (table.closest(".pst-scrollable-table-container") ?? table).before(box);
    show(buttons[1], choices[1][1]);
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("article table")) {
      if (table.classList.contains("short")) continue;
      if (table.classList.contains("claims-table")) claims(table);
      else {
        const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
        if (heads.includes("verdict") && heads.includes("why")) verdicts(table, heads.indexOf("verdict"));
      }
    }
  });
})();
