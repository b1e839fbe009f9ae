"""Random Python configs with statements of every kind, and the values that Python gives them.

The judge is Python itself: a config is run, here and nowhere else, and each value that the reader
determines has to be the one that Python has at the end.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from closedform.errors import ConfigError
from closedform.recipes.documents.python_text import parsed_python
from closedform.recipes.documents.values import ConfigCall, Reference, Unresolved

NAMES = ("N", "M", "L", "D", "E", "P")
START = """\
N = 0.1
M = 3
L = [1, 2, 3, 4]
D = dict(a=1, b=dict(c=2, d=[5, 6]), n=N)
E = {"x": D["b"], "y": [D, L]}
P = [dict(k=1), dict(k=2)]
"""
# $n: a number or its name; $N, $L, $D: the name of a number, list, dict; $i: a new name; $v: a
# literal.
SIMPLE = (
    "$N = $v",
    "$N = $n + $v",
    "$N += $v",
    "$N *= 2",
    "$N: float = $v",
    "$N, $i = $v, $n",
    "$N, *$i = $v, 2, 3",
    "[$N, $i] = [$n, $v]",
    "$N = $i = $v",
    "$N = $v if $n > 1 else $n",
    "$N = $n and $v",
    "$N = (M := $v)",
    "$i = (N := $v) + $n",
    "print(M := $v)",
    "$i = [M := $v for _ in (1, 2)]",
    "$i = [N for N in (1, 2)]",
    "del $i0",
    "del N; N = $v",
    "$D = $D",
    "$L = $L",
    "$i = $D",
    "$i = $D; $i['a'] = $v",
    "$i = $L; $i[-1] = $v",
    "$i = $D['b'] if 'b' in $D else $D; $i['c'] = $v",
    "$i = [$D]; $i[0]['a'] = $v",
    "$i = [$D] * 2; $i[1]['a'] = $v",
    "$i = $L[:]; $i[0] = $v",
    "$i = P[1:]; $i[0]['k'] = $v",
    "$i = ($D, $L); $i[1].append($v)",
    "$i = {**$D}; $i['a'] = $v",
    "$i = {**E}; $i['x']['c'] = $v",
    "$i = dict($D); $i['b'] = $v",
    "$i = dict(E, q=1); $i['x']['c'] = $v",
    "$i = $D.copy(); $i['a'] = $v",
    "$i = E.get('x'); $i['c'] = $v",
    "$i = list(P); $i[0]['k'] = $v",
    "import copy; $i = copy.deepcopy($D); $i['a'] = $v",
    "import copy; $i = copy.copy(E); $i['x']['c'] = $v",
    "$D['a'] = $v",
    "$D['a'] += $v",
    "D['b']['c'] = $v",
    "D['b']['d'][-1] = $v",
    "E['y'][0]['a'] = $v",
    "$D['new'] = $L",
    "$D['a'] = $D2['a']",
    "$L[0] = $v",
    "$L[-2] = $v",
    "$L[1:3] = [$v]",
    "$L += [$v]",
    "$L *= 2",
    "$L = $L + [$v]",
    "$D |= {'a': $v}",
    "$D = $D | {'a': $v}",
    "$L.append($v)",
    "$L.extend([$v, $n])",
    "$L.insert(0, $v)",
    "$L.pop()",
    "$L.reverse()",
    "$L.sort()",
    "$L.sort(key=lambda x: -x)",
    "$L.remove($L[0])",
    "$L.clear()",
    "$D.update(a=$v)",
    "$D.update({'a': $v}, z=1)",
    "$D.update([('a', $v)])",
    "$D.pop('a', None)",
    "$N = $D.pop('a', $v)",
    "$N = $D.setdefault('zz', $v)",
    "$D.setdefault('zz', $v)",
    "$D.get('b', {})['c'] = $v",
    "$D.clear()",
    "$D.__setitem__('a', $v)",
    "dict.update($D, a=$v)",
    "list.append($L, $v)",
    "import operator; operator.setitem($D, 'a', $v)",
    "import random as $i; $i.Random(1).shuffle($L)",
    "del $L[0]",
    "del $D['n']",
    "for N in (1, $v): pass",
    "for $i in [1, 2]: $D['a'] = $v",
    "for $i in $D: M = $v",
    "for $i in P: $i['k'] = $v",
    "for $i, $D['a'] in ((1, $v),): pass",
    "for $D['a'] in (1, $v): pass",
    "while M < 100: M = abs(M) * 3 + 1",
    "for $i in [1]:\n    def g(): $D['a'] = $v\n$D2['z'] = 3\nD = dict(D)\ng()",
    "for $i in [1]: $D['b'] = {'c': $v}",
    "for $i in [1]:\n    $D['b'] = E['x']\n    $D['b']['c'] = $v",
    "for $i in [1]: $D['new']['c'] = $v",
    "if id(M): $D['a'] = $v; E['x']['c'] = $v",
    "while True:\n    $D['a'] = $v\n    break",
    "try:\n    $N = $v\n    1 / 0\n    $N = 7\nexcept ZeroDivisionError as M:\n    pass\nM = 5",
    "try:\n    $D['a'] = $v\nfinally:\n    $L[0] = $v",
    "import contextlib\nwith contextlib.suppress(Exception):\n    $N = $v\n    1 / 0\n    $N = 9",
    "import contextlib\nwith contextlib.nullcontext($v) as N: pass",
    "import contextlib\nwith contextlib.nullcontext($D) as $i:\n    $i['a'] = $v",
    "match $v:\n    case N: pass",
    "match $D:\n    case {'a': M, **$i}: pass",
    "match $L:\n    case [N, *$i]: pass",
    "if $n > 1:\n    $N = $v\nelse:\n    $D['a'] = $v",
    "if len($L) > 2: $N = $v",
    "if $D: $N = $v",
    "if id($D) > 0: $D['a'] = $v",
    "if str(M) == '3' or True: N = $v",
    "True or $D.update(a=$v)",
    "False or $D.update(a=$v)",
    "None if True else $D.update(a=$v)",
    "id($D) and $D.update(a=$v)",
    "[$D.update(a=q) for q in (1, $v)]",
    "[$L.append(q) for q in range(2)]",
    "any($D.update(a=q) for q in (1, $v))",
    "{q: $L.append(q) for q in (1, 2)}",
    "f'{$L.append($v)}'",
    "$i = lambda: $D.update(a=$v)\n$i()",
    "$i = [lambda: $D.update(a=$v)]\n$i[0]()",
    "$i = lambda d: d.update(a=$v)\n$i($D)",
    "sorted([1, 2], key=lambda q: $L.append(q) or 0)",
    "max(1, 2, key=lambda q: $D.update(a=$v) or 0)",
    "list(map($L.append, [$v]))",
    "def $i():\n    global N\n    N = $v\n$i()",
    "def $i():\n    $D['a'] = $v\n$i()",
    "def $i():\n    $D['a'] = $v",
    "def $i(d):\n    d['a'] = $v\n$i($D)",
    "def $i(d):\n    e = d\n    e['a'] = $v\n    return e\n$i($D)",
    "def $i():\n    return $D\n$i()['a'] = $v",
    "def $i():\n    return $D\nF = $i()\nF['a'] = $v",
    "def $i():\n    def g():\n        global M\n        M = $v\n    g()\n$i()",
    "def $i():\n    $L.append($v)\nG = $i\nG()",
    "def $i():\n    $L.append($v)\nG = [$i]\nG[0]()",
    "def $i(f):\n    $L.append($v)\n    return f\n@$i\ndef g(): pass",
    "def $i(x=$L.append($v)): pass",
    "def $i(x: $L.append($v)): pass",
    "def N(): pass",
    "class N: pass",
    "class $i:\n    $D['a'] = $v",
    "class $i:\n    global N\n    N = $v",
    "class $i:\n    def __init__(self): $D['a'] = $v\n$i()",
    "class $i:\n    lr = $v\n$i.lr = 9\nN = $i.lr",
    "class $i:\n    def __setattr__(self, k, v): $D['a'] = $v\n$i().x = 3",
    "class $i:\n    def __add__(self, o): $D['a'] = $v; return 1\nM = $i() + 1",
    "import types\n$i = types.SimpleNamespace(a=$D)\n$i.a['a'] = $v",
    "import types\n$i = types.SimpleNamespace(a=$v)\n$i.a = 4\nN = $i.a",
    "import collections as N",
    "from math import pi as M",
    "from math import *",
    "import math\nN = math.pi",
    "exec('N = $v')",
    "globals()['N'] = $v",
    "globals().update(N=$v)",
    "locals()['N'] = $v",
    "vars()['N'] = $v",
    "import sys\nsys.modules.get('absent')\nsys._getframe(0).f_globals['N'] = $v",
    "import builtins\nbuiltins.exec('N = $v')",
    "from builtins import exec as e\ne('N = $v')",
    "eval('$D.update(a=$v)')",
    "getattr($D, 'update')(a=$v)",
    "dict = list",
    "len = lambda q: 7\nN = len($L)",
    "def max(*q): return 9\nN = max(1, 2)",
    "from operator import sub as max\nN = max(5, 2)",
    "import math as float\nN = 1",
    "$N = $D['a']",
    "$N = $L[-1]",
    "$N = $D == $D2",
    "$N = $L is $L",
    "$N = M in $L",
    "$N = not $L",
    "assert $D.update(a=$v) is None",
    "$N = $L.index($L[-1])",
    "$i = iter($D.values())\n$N = list($i)",
    "$i = $D.items()",
    "$i = zip(P, P)\nfor q, _ in $i: q['k'] = $v",
    "$i, $D['a'] = $v, $n",
    "$D['a'], $L[0] = $v, $n",
    "$N = $v; $N = $N ** 2",
    "async def $i(): pass",
    "pass",
    "'''a text'''",
)


@dataclass
class Count:
    """The number of programs that Python runs, of values that were compared, and what is wrong."""

    programs: int = 0
    determined: int = 0
    refused: int = 0
    wrong: list[str] = field(default_factory=list)


def program(draw: random.Random) -> str:
    """A config of some random statements."""
    lines = [START]
    for fresh in range(1, draw.randrange(2, 8)):
        text = draw.choice(SIMPLE)
        choices: Mapping[str, str] = {
            "$i0": f"i{draw.randrange(1, fresh + 1)}",
            "$i": f"i{fresh}",
            "$D2": draw.choice(("D", "E", "P[0]", "D['b']")),
            "$D": draw.choice(("D", "D", "E", "P[0]")) if "$D =" not in text else "D",
            "$L": draw.choice(("L", "L", "D['b']['d']")) if "$L =" not in text else "L",
            "$N": draw.choice(("N", "M")),
            "$n": draw.choice(("N", "M", "2")),
            "$v": str(draw.choice((5, 0.25, 7, -1))),
        }
        for key, value in choices.items():
            text = text.replace(key, value)
        lines.append(text)
    return "\n".join(lines)


def check(text: str, count: Count) -> None:
    """Compares what is read with what Python computes."""
    scope: dict[str, Any] = {"__name__": "config"}
    try:
        exec(compile(text, "<program>", "exec"), scope)
    except Exception:  # of any kind, as the program is random
        return
    count.programs += 1
    try:
        names = parsed_python(text, "<program>").names
    except ConfigError:
        count.refused += 1
        return
    for name in NAMES:
        if name not in names:
            if name in scope and isinstance(scope[name], int | float | list | dict):
                count.wrong.append(f"{name} is {scope[name]!r} and not read:\n{text}")
            continue
        if name not in scope:
            if not isinstance(names[name], Unresolved):
                count.wrong.append(f"{name} is deleted, and read as {names[name]!r}:\n{text}")
            continue
        difference = _difference(names[name], scope[name], count)
        if difference is not None:
            count.wrong.append(f"{name}{difference}:\n{text}")


def _difference(read: Any, value: Any, count: Count) -> str | None:
    """Where a value that was read is not that of Python; None where it is, or is left open."""
    if isinstance(read, Unresolved | ConfigCall | Reference):
        return None
    if isinstance(read, dict) and isinstance(value, dict):
        if read.keys() != value.keys():
            return f" has the keys {list(read)}, and in Python {list(value)}"
        pairs = [(key, read[key], value[key]) for key in read]
    elif isinstance(read, list | tuple) and type(read) is type(value):
        if len(read) != len(value):
            return f" has {len(read)} items, and in Python {len(value)}"
        pairs = [(place, *pair) for place, pair in enumerate(zip(read, value, strict=True))]
    else:
        count.determined += 1
        is_same = type(read) is type(value) and read == value
        return None if is_same else f" is {read!r}, and in Python {value!r}"
    for key, inner, expected in pairs:
        found = _difference(inner, expected, count)
        if found is not None:
            return f"[{key!r}]{found}"
    return None


def sweep(count: int, seed: int) -> Count:
    """Reads and runs so many random programs."""
    draw = random.Random(seed)
    result = Count()
    while result.programs < count:
        check(program(draw), result)
    return result
