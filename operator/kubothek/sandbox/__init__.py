"""Worker processes under limits that the kernel keeps, and the streams that they send back."""
