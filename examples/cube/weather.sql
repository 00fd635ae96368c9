SELECT month, time_hour, origin, temp, wind_speed, visib FROM weather ORDER BY ALL
