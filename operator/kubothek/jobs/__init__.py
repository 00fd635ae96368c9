"""What a driver runs: one module a verb, a job spec (JSON) in, a result (JSON) out.

``python -m kubothek.jobs.main job.json`` is the program of every driver pod, and of the local runtime's subprocesses.
"""
