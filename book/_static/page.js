// Small services of every page: tables become cards where the page is narrow, and what scrolls can be reached.
(() => {
  "use strict";
  const FEWEST = 4; // columns of a table that always becomes cards; one with fewer does where it is too wide
  const SIGNS = 16; // pixels, of the bracket and the comma beside a formula
  const narrow = matchMedia("(max-width: 600px)"); // as in the styles

  const cards = (table) => {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    if (!heads.length || table.querySelector("tbody [colspan], tbody [rowspan]")) return;
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.children].forEach((cell, at) => (cell.dataset.label ??= heads[at] ?? ""));
    table.classList.add("as-cards");
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("article table"))
      if (table.querySelectorAll("thead th").length >= FEWEST) cards(table);
  });

  // A comma stays with its formula, and a sign of per cent with its number.
  document.addEventListener("DOMContentLoaded", () => {
    for (const formula of document.querySelectorAll("article span.math")) {
      const [before, after] = [formula.previousSibling, formula.nextSibling];
      const lead = before?.nodeType === Node.TEXT_NODE ? /[([“]+$/.exec(before.data)?.[0] : "";
      const tail = after?.nodeType === Node.TEXT_NODE ? /^[.,;:!?)\]”’]+/.exec(after.data)?.[0] : "";
      if (!lead && !tail) continue;
      const line = document.createElement("span");
      line.className = "unbroken";
      formula.replaceWith(line);
      line.append(lead ?? "", formula, tail ?? "");
      if (lead) before.data = before.data.slice(0, -lead.length);
      if (tail) after.data = after.data.slice(tail.length);
    }
    for (const part of document.querySelectorAll("article :is(p, li, td, summary, em, .pasted-text, .caption-text)"))
      for (const text of part.childNodes)
        if (text.nodeType === Node.TEXT_NODE && text.data.includes(" %"))
          text.data = text.data.replace(/(\d) %/g, "$1\u00a0%").replace(/^ %/, "\u00a0%");
  });

  // What scrolls in a box of its own can be reached by the keyboard: a wide figure, table or formula, once it is there.
  // A formula in a line gets such a box where it is wider than what holds it.
  const boxes =
    "article figure, article .cell_output, .claims-box, article mjx-container[display=true], .math.scrolls";
  const blocks = "p, li, td, th, dd, dt, summary, figcaption, div";
  const scrolls = (box) =>
    box.clientWidth && (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight + 12);
  const reach = () => {
    const formulas = [...document.querySelectorAll("article span.math")].map((formula) => {
      const drawn = formula.querySelector("mjx-container")?.getBoundingClientRect().width ?? 0;
      const signs = formula.parentElement.matches(".unbroken") ? SIGNS : 0;
      return [formula, drawn > 0 && drawn + signs > formula.closest(blocks).clientWidth];
    });
    for (const [formula, wide] of formulas) formula.classList.toggle("scrolls", wide);
    if (narrow.matches)
      for (const table of document.querySelectorAll("article table:not(.as-cards)"))
        if (table.offsetWidth > table.parentElement.clientWidth) cards(table);
    for (const box of document.querySelectorAll(boxes))
      if (scrolls(box) && !box.querySelector("a, button, input")) box.tabIndex = 0;
  };
  addEventListener("load", () => Promise.resolve(window.MathJax?.startup?.promise).then(reach));
  addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true);
})();
