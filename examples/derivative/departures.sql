SELECT time_hour AS event_time, origin, carrier, flight, dep_delay AS delay FROM flights WHERE day = 1 AND dep_delay IS NOT NULL ORDER BY ALL
