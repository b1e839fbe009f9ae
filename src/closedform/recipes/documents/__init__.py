"""The forms of config files, each read to plain data without running anything."""
