"""Download of sources over HTTP, under the policy of allowed URLs and addresses."""
