"""Files of Rocq with the proved goals of a certificate, and the library that they load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from closedform.errors import VerificationError
from closedform.files import replace_file
from closedform.verify.checker.terms import RejectedProofError
from tools.rocq.definitions import InexpressibleError
from tools.rocq.script import section

LIBRARY = "Closedform.v"
"""The lemmas of all certificates, a file of this folder."""

_INTEGERS = "add div head0 land leb lor lsl lsr ltb lxor mod mul mulc sub tail0 diveucl_21"
_DEFINED = "addc addcarryc addmuldiv compare diveucl subc subcarryc"
AXIOMS_OF_REALS = frozenset(
    {
        "ClassicalDedekindReals.sig_forall_dec",
        "ClassicalDedekindReals.sig_not_dec",
        "FunctionalExtensionality.functional_extensionality_dep",
        # The excluded middle: by it, Rtopology proves that a continuous function is bounded on a
        # closed interval (continuity_ab_maj), hence the mean value theorem (MVT). By that, Rpower
        # proves exp_increasing, and defines the logarithm `ln`, hence the power `Rpower`.
        "Classical_Prop.classic",
    }
)
"""The axioms of the real numbers of the standard library of Rocq 8.16; those of `ln` are these."""
AXIOMS = frozenset(
    {
        *AXIOMS_OF_REALS,
        # `interval` computes with the machine integers of the kernel, whose operations are axioms.
        "PrimInt63.int",
        *(f"PrimInt63.{name}" for name in (*_INTEGERS.split(), *_DEFINED.split(), "eqb")),
        *(f"Uint63.{name}_spec" for name in _INTEGERS.split()),
        *(f"Uint63.{name}_def_spec" for name in _DEFINED.split()),
        *(f"Uint63.{name}" for name in ("eqb_correct", "eqb_refl", "of_to_Z")),
    }
)
"""The axioms that a certificate may use: of the reals and of the machine integers."""

_HEAD = """\
(* {subject}

   Proofs of claims over the real numbers, printed by closedform. The kernel of Rocq checks them:

     coqc -Q . Closedform Closedform.v
     coqc -Q . Closedform {name}.v
     coqc -Q . Closedform {name}_claims.v

   {name}_claims.v states the claims without their proofs, refers to the theorems of this file, and
   prints the axioms: a reader prints that file anew, and trusts nothing that is written here. *)

From Coq Require Import Reals Lra ZArith QArith List.
Import ListNotations.
From Closedform Require Import Closedform.
Open Scope R_scope.
"""

_CLAIMS_HEAD = """\
(* {subject}

   The claims whose proofs {name}.v has, printed by closedform from the claims only. Where this file
   is accepted, the theorems of {name}.v are these, whatever is in it.

   Axioms, printed at the end: those of the real numbers of the standard library (for a logarithm or
   a power, the excluded middle is one of them), and the machine integers where a number is bounded
   by computation. *)

From Coq Require Import Reals ZArith List.
Import ListNotations.
From Closedform Require Import Closedform.
From Closedform Require {name}.
Open Scope R_scope.
"""


class ProvedGoal(Protocol):
    """A goal of a certificate."""

    @property
    def claim(self) -> str:
        """The sentence of the claim."""

    @property
    def goal(self) -> str:
        """The text of the goal."""

    @property
    def statement(self) -> Mapping[str, Any] | None:
        """The goal and its assumptions as data."""

    @property
    def proof(self) -> Mapping[str, Any] | None:
        """The proof as data."""


@dataclass(frozen=True, slots=True)
class RocqFile:
    """A file of Rocq.

    Attributes:
        name: Its name without ``.v``, an identifier.
        text: The file with the proofs.
        claims: The file with the claims, which refers to the theorems of the file with the proofs.
        reasons: Why goals are not in it, by their place among the goals.
    """

    name: str
    text: str
    claims: str
    reasons: Mapping[int, str]


def module_name(name: str) -> str:
    """Returns the name of a module of Rocq for the name of a file.

    Example:
        >>> module_name("warmup-cosine")
        'warmup_cosine'
    """
    text = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "claims"
    is_usable = not text[0].isdigit() and text != LIBRARY.removesuffix(".v")
    return text if is_usable else f"claims_{text}"


def rocq_file(name: str, subject: str, goals: Iterable[ProvedGoal]) -> RocqFile:
    """Returns the file with the goals whose proofs can be printed, and why the others are not."""
    name = module_name(name)
    reasons: dict[int, str] = {}
    names, proofs, claims = [], [], []
    for place, goal in enumerate(goals):
        if goal.statement is None or goal.proof is None:
            reasons[place] = "it has no proof object"
            continue
        try:
            proof, claim = section(f"goal_{place}", name, goal.statement, goal.proof)
        except (InexpressibleError, RejectedProofError) as error:
            reasons[place] = str(error)
            continue
        names.append(f"goal_{place}")
        comment = f"(* {_comment(goal.claim)}\n   {_comment(goal.goal)} *)\n"
        proofs.append(f"{comment}{proof}")
        claims.append(f"{comment}{claim}")
    subject = _comment(subject)
    heads = (template.format(subject=subject, name=name) for template in (_HEAD, _CLAIMS_HEAD))
    proofs_head, claims_head = heads
    return RocqFile(
        name,
        "\n".join((proofs_head, *proofs)),
        "\n".join((claims_head, *claims, _assumptions(names))),
        reasons,
    )


def _assumptions(names: Sequence[str]) -> str:
    """Prints the axioms of all claims once, those of their nested pairs; it takes seconds."""
    if not names:
        return ""
    pairs = f"{names[-1]}.claim"
    for name in reversed(names[:-1]):
        pairs = f"({name}.claim, {pairs})"
    return f"Definition claims := {pairs}.\nPrint Assumptions claims.\n"


def write_rocq(folder: Path, file: RocqFile) -> None:
    """Writes a file into a folder, with the library.

    Raises:
        VerificationError: One of them cannot be written.
    """
    library = (Path(__file__).parent / LIBRARY).read_bytes()
    contents = {
        LIBRARY: library,
        f"{file.name}.v": file.text.encode(),
        f"{file.name}_claims.v": file.claims.encode(),
    }
    for name, content in contents.items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / name, content)
        except OSError as error:
            raise VerificationError(
                f"the file of Rocq cannot be written: {error.strerror or error}",
                where=f"file {str(folder / name)!r}",
            ) from error


def printed_axioms(output: str) -> frozenset[str]:
    r"""Returns the axioms in the output of ``coqc``: what ``Print Assumptions`` printed.

    Example:
        >>> printed_axioms("Axioms:\nClassical_Prop.classic : forall P : Prop, P \\/ ~ P\n")
        frozenset({'Classical_Prop.classic'})
    """
    _, _, text = output.partition("Axioms:\n")
    names = re.findall(r"^(\S+)\s*(?::|$)", text, re.MULTILINE)
    return frozenset(names) - {"Axioms:", "Axioms"}


def unexpected_axioms(output: str) -> tuple[str, ...]:
    r"""Returns the axioms in the output of ``coqc`` that a certificate must not use.

    Example:
        >>> unexpected_axioms("Axioms:\nfalse : False\n")
        ('false',)
    """
    return tuple(sorted(printed_axioms(output) - AXIOMS))


def _comment(text: str) -> str:
    return text.replace('"', "'").replace("(*", "( *").replace("*)", "* )")
