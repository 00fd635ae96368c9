"""Models of the kinds, their validation rules and conditions, and the job specs. No I/O."""
