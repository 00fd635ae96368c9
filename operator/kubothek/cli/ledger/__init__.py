"""Commands for ledgers: datasets with a chain of Open Data Fabric, on any store."""
