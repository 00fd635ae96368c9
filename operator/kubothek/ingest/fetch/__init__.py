"""Download of sources over HTTP, under a policy of permitted URLs and addresses."""
