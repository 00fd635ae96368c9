SELECT coalesce(carrier, 'all')                  AS carrier,
       count(*)                                  AS flights,
       round(avg(dep_delay), 1)                  AS mean_delay,
       count(DISTINCT dest)                      AS destinations,
       cast(round(avg(planes.seats)) AS INTEGER) AS mean_seats,
       mode(airports.name)                       AS main_airport
FROM flights
JOIN airports ON airports.faa = flights.origin
LEFT JOIN planes USING (tailnum)
GROUP BY ROLLUP (carrier)
ORDER BY flights DESC
