"""Prints certificates as files of Rocq, next to the library that they load.

``python -m tools.rocq out/cosine.json`` writes ``out/cosine.v``, ``out/cosine_claims.v`` and
``out/Closedform.v``, and prints "Rocq: 9 of 9 proved goals printed".
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from closedform.verify.claims.certified import VERSION, CertifiedGoal
from tools.rocq.files import rocq_file, write_rocq


def print_certificate(path: Path) -> str:
    """Writes the files of a certificate, and returns the lines that say what is in them.

    Raises:
        ValueError: The file is not a certificate of the version of this checkout.
    """
    content = json.loads(path.read_text(encoding="utf-8"))
    version = content.get("version") if isinstance(content, dict) else None
    if version != VERSION:
        raise ValueError(f"{path}: a certificate of version {VERSION} is expected, got {version!r}")
    goals = [
        CertifiedGoal(
            entry["claim"],
            entry["goal"],
            entry["statement"],
            entry.get("proof"),
            entry.get("reason", ""),
        )
        for entry in content["goals"]
    ]
    file = rocq_file(path.stem, content["subject"], goals)
    write_rocq(path.parent, file)
    lines = [f"Rocq: {len(goals) - len(file.reasons)} of {len(goals)} proved goals printed"]
    lines += [
        f"not printed for Rocq: {goals[place].claim}: {reason}"
        for place, reason in file.reasons.items()
        if goals[place].proof is not None
    ]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> None:
    """Prints the certificates that are named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("certificate", nargs="+", type=Path, help="JSON of verify --certificate")
    for path in parser.parse_args(words).certificate:
        sys.stdout.write(f"{print_certificate(path)}\n")


if __name__ == "__main__":
    main()
