"""Worker processes under limits that the kernel enforces, and the streams that they send back."""
