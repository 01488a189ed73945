// A link to a place within a fold opens it, and so does printing.
(() => {
  const open = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const place = name && document.getElementById(name);
    if (!place) return;
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    place.scrollIntoView();
  };
  const closed = [];
  addEventListener("hashchange", open);
  addEventListener("DOMContentLoaded", open);
  addEventListener("beforeprint", () => {
    closed.push(...document.querySelectorAll("details:not([open])"));
    closed.forEach((fold) => (fold.open = true));
  });
  addEventListener("afterprint", () => closed.splice(0).forEach((fold) => (fold.open = false)));
})();
