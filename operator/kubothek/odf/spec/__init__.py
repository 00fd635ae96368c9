"""Reading and writing of the formats of Open Data Fabric: events, blocks, manifests, names, identities."""
