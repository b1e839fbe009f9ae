"""The recipe of conda-forge with the hash of an sdist: ``release.yml`` prints it for a release.

A commit cannot contain the hash of its own sdist: packaging/conda/meta.yaml has zeros in its place.
"""

import hashlib
import re
import sys
from pathlib import Path

RECIPE = Path(__file__).parents[2] / "packaging" / "conda" / "meta.yaml"


def fill_recipe(text: str, sdist: Path) -> str:
    """Returns the text of a recipe with the SHA-256 of an sdist of the same version.

    Raises ``ValueError`` at an sdist of another version, and at a recipe without one place for a
    hash.
    """
    versions = re.findall(r'^{% set version = "([^"]+)" %}$', text, re.MULTILINE)
    if [f"closedform-{version}.tar.gz" for version in versions] != [sdist.name]:
        raise ValueError(
            f"{sdist.name}: expected the sdist of the version of the recipe, {versions}; "
            "build it from the same commit with `make dist`"
        )
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    filled, count = re.subn(r"(?m)^(  sha256: )[0-9a-f]{64}$", rf"\g<1>{digest}", text)
    if count != 1:
        raise ValueError(f"expected one line `  sha256: ` with 64 hex digits, got {count}")
    return filled


if __name__ == "__main__":
    print(fill_recipe(RECIPE.read_text(encoding="utf-8"), Path(sys.argv[1])), end="")
