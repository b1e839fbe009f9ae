"""Results of a long comparison by case: an interrupted run goes on where it stopped.

A result is for the sources that it was computed with: it is read again only while these files and
packages are the same. Only cases that pass are stored.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.inputs import ROOT, commit, digest

FOLDER = ROOT / "build" / "results"


class StoredResults:
    """The results of one comparison, in a file of one line of JSON for each.

    Args:
        name: The name of the file.
        sources: Files and folders of Python code, relative to the repository.
        packages: Packages whose versions matter.
        folder: The folder of the file.
    """

    def __init__(
        self, name: str, sources: Iterable[str], packages: Iterable[str], folder: Path = FOLDER
    ) -> None:
        self._path = folder / f"{name}.jsonl"
        self._digest, self._commit = digest(sources, packages), commit()
        self._results: dict[str, str] = {}
        if self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                if entry["sources"] == self._digest:
                    self._results[entry["case"]] = entry["result"]

    def result(self, case: str, compute: Callable[[], str]) -> str:
        """Returns the stored result of a case, or computes and stores it."""
        if case not in self._results:
            result = compute()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            entry = {"commit": self._commit, "sources": self._digest}
            line = json.dumps({"case": case, **entry, "result": result})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
            self._results[case] = result
        return self._results[case]

    def counts(self, kind: Callable[[str, str], str]) -> Counter[str]:
        """Returns how many stored results are of each kind, a function of case and result."""
        return Counter(kind(case, result) for case, result in self._results.items())
