"""The referee: files of schedules and steps that other tools wrote, against a named source."""
