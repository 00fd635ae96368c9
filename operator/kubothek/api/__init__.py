"""The kinds: their models, their validation rules, their conditions, and the job specs. No I/O."""
