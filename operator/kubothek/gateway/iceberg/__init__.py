"""An Apache Iceberg REST catalogue, read-only, over the Iceberg exports of the datasets that a gateway serves."""
