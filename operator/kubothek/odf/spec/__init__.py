"""The bytes and texts of Open Data Fabric, in and out: events, blocks, manifests, names, identities."""
