"""Cubes: several datasets with shared dimensions, changed in atomic commits (docs/cubes.md).

    cube = lake.create_cube("geo", dimension_columns=["city", "day"], partition_columns=["country"])
    cube.build({"seed": temperatures, "population": population}, partition_on={"population": ["country"]})
    cube.append({"seed": tomorrow})
    cube.query(conditions="country = 'DE'", payload_columns=["temp", "population"])

:mod:`kubothek.table.log.multi` defines a cube and its commit protocol.
"""
