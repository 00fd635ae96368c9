SELECT time_hour AS event_time, origin, wind_speed FROM weather WHERE day = 1 ORDER BY ALL
