// A link to a place within a fold opens it.
(() => {
  const open = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const place = name && document.getElementById(name);
    if (!place) return;
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    place.scrollIntoView();
  };
  addEventListener("hashchange", open);
  addEventListener("DOMContentLoaded", open);
})();
