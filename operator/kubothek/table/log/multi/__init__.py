"""Cubes in the commit protocol: one head over the heads of several datasets (docs/commit-protocol.md, "Cubes").

What a cube is, its rules and its transaction are here, below every room that commits to a dataset: whoever writes to
a member, maintenance too, settles the cube first and commits through its head. :mod:`kubothek.cube` has the verbs.
"""
