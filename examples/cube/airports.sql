SELECT faa AS origin, name AS airport FROM airports ORDER BY ALL
