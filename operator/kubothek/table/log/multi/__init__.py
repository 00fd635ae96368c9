"""Cubes in the commit protocol: one head over the heads of several datasets ("The cube transaction").

The definition of a cube, its rules and its transaction are here, below every package that commits to a dataset. Each
writer of a member, maintenance too, settles the cube first and commits through its head. :mod:`kubothek.cube` has the
verbs.
"""
