SELECT tailnum, manufacturer, model, seats FROM planes ORDER BY ALL
