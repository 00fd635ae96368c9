SELECT month, time_hour, origin, carrier, flight, coalesce(tailnum, 'unknown') AS tailnum, dest, dep_delay FROM flights ORDER BY ALL
