"""The program of a driver: one module per verb; a job spec (JSON) goes in, a result (JSON) comes out.

Every driver pod and every subprocess of the local runtime runs ``python -m kubothek.jobs.main job.json``.
"""
