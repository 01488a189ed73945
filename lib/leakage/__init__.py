"""Privacy attacks on trained models: GPU-aware trainers, attacks and the theory they are measured against.

Read from the bottom up: `runtime` and `metrics`, `data`, `models`, then `theory`, `geometry` and `trainers`, then
`attacks`; `studies` are the papers' experiments. `claims`, `figures` and `sweeps` serve the chapters, `pipeline` builds
the book. Import what you use (`from leakage.theory import ridge`): the packages load
nothing by themselves, so a chapter depends on exactly the modules it names. Only `sources` comes first: it
takes note of the files before any is imported.
"""

from leakage import sources as sources

__version__ = "0.1.0"
