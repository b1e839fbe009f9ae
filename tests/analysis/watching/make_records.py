"""Writes records.json: the values that the updates of every loop of ``loops.py`` used."""

import json

from tests.analysis.watching.loops import LOOPS, RECORDS, Values, recorded


def main() -> None:
    stored = {}
    for name, loop in LOOPS.items():
        values: list[list[Values]] = []
        loop.run(recorded(values))
        stored[name] = values
        print(name, len(values))
    RECORDS.write_text(json.dumps(stored) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
