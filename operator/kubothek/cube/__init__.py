"""Cubes: several datasets with shared dimensions as one whole, written all or nothing (docs/cubes.md).

    cube = lake.create_cube("geo", dimension_columns=["city", "day"], partition_columns=["country"])
    cube.build({"seed": temperatures, "population": population}, partition_on={"population": ["country"]})
    cube.append({"seed": tomorrow})
    cube.query(conditions="country = 'DE'", payload_columns=["temp", "population"])

What a cube is and how it is committed: :mod:`kubothek.table.log.multi`.
"""
