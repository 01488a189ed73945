"""What stands between a page and a reader who cannot see it, or not well: the serious findings of axe.

A page of the book is long, and most of it is folded. All rules look at what is shown; the few that look at hidden
elements too look at the whole page, in which the others find nothing more. The page is left as it was.
"""

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

# axe looks elements up in lists that it lets grow, from their beginnings: tens of thousands of them. While it is loaded
# it takes this search for the language's own; it finds the same, with a map beside each long list.
_SEARCH = """(() => {
  const search = Array.prototype.indexOf, maps = new WeakMap();
  const quick = function (sought, ...start) {
    if (start.length || this.length < 16) return search.call(this, sought, ...start);
    const known = maps.get(this) ?? { places: new Map(), length: 0 };
    maps.set(this, known);
    for (; known.length < this.length; known.length++)
      if (!known.places.has(this[known.length])) known.places.set(this[known.length], known.length);
    const place = known.places.get(sought) ?? -1;
    return known.length === this.length && this[place] === sought ? place : search.call(this, sought);
  };
  Array.prototype.indexOf = quick;
  try { %s } finally { Array.prototype.indexOf = search; }
})()"""
_SHOWN = """async () => {
  const folded = [...document.querySelectorAll("details:not([open])")].map((fold) => {
    const range = document.createRange();
    range.setStartAfter(fold.querySelector(":scope > summary"));
    range.setEndAfter(fold.lastChild);
    return [fold, range.extractContents()];
  });
  try { return (await axe.run({ resultTypes: ["violations"] })).violations; }
  finally { for (const [fold, contents] of folded.reverse()) fold.append(contents); }
}"""
# Colours are of what is shown.
_HIDDEN = """async () => {
  const colours = ["color-contrast", "link-in-text-block"];
  const rules = axe._audit.rules.filter((rule) => rule.enabled && !rule.excludeHidden && !colours.includes(rule.id));
  return (await axe.run({ resultTypes: ["violations"], runOnly: rules.map((rule) => rule.id) })).violations;
}"""


def serious_barriers(page: Page, *, hidden: bool = False) -> list[str]:
    """A line for each serious finding in what the page shows, or in all of it by the rules for what is hidden too."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_SEARCH % AXE_SCRIPT)
    return [
        f"{found['id']}: {found['nodes'][0]['html'][:200]}"
        for found in page.evaluate(_HIDDEN if hidden else _SHOWN)
        if found["impact"] in ("serious", "critical") or found["id"] == "region"
    ]
