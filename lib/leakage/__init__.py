"""Privacy attacks on trained models: GPU-aware trainers, attacks and the theory they are measured against.

Read from the bottom up: `runtime` and `metrics`, `data`, `models`, then `theory`, `geometry` and `trainers`, then
`attacks` and `audit`. The packages load nothing by themselves, so import what you use
(`from leakage.theory import ridge`).
"""

__version__ = "0.1.0"
