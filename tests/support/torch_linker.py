"""torch.compile in a folder with a space in its name: ``link_torch()``, once for each process."""

import contextlib
import getpass
import hashlib
import importlib.util
import os
import tempfile
from pathlib import Path


def link_torch() -> None:
    """Names the libraries of torch by a path without spaces, which ``torch.compile`` needs.

    Inductor writes ``-L`` and the path into a command line without quotes (torch 2.13,
    cpp_builder.py): in a folder with a space in its name the linker finds no torch.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None or " " not in spec.origin:
        return
    from torch.utils import cpp_extension

    # One path for all workers and runs: it is a part of the keys of Inductor's cache.
    folder = Path(spec.origin).parent
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    link = Path(tempfile.gettempdir()) / f"torch-of-{getpass.getuser()}-{digest}"
    with contextlib.suppress(FileExistsError):
        link.symlink_to(folder, target_is_directory=True)
    assert link.resolve() == folder.resolve(), f"remove {link}"
    cpp_extension._TORCH_PATH = str(link)
    cpp_extension.TORCH_LIB_PATH = str(link / "lib")
