// Small services of every page: tables become cards where the page is narrow, and a printed page has no closed fold.
(() => {
  "use strict";
  const FEWEST = 4; // columns of a table that becomes cards

  document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("article table")) {
      const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
      if (heads.length < FEWEST || table.querySelector("tbody [colspan], tbody [rowspan]")) continue;
      for (const row of table.querySelectorAll("tbody tr"))
        [...row.children].forEach((cell, at) => (cell.dataset.label ??= heads[at] ?? ""));
      table.classList.add("as-cards");
    }
  });

  const opened = [];
  window.addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details:not([open])")) {
      fold.open = true;
      opened.push(fold);
    }
  });
  window.addEventListener("afterprint", () => {
    for (const fold of opened.splice(0)) fold.open = false;
  });
})();
