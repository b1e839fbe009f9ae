#!/bin/sh
# Makes .venv with the first Python that is 3.11 or newer: tools/make_environment.sh python3 python3.12
if .venv/bin/python -c "" 2>/dev/null; then exit 0; fi
for python in "$@"; do
  if "$python" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
    echo "== setup: .venv with $("$python" -V), a few minutes the first time"
    exec "$python" -m venv --clear .venv
  fi
done
echo "closedform needs Python >= 3.11 with its venv module; looked for: $*" >&2
for python in "$@"; do
  if version=$("$python" -V 2>&1); then echo "  $python is $version" >&2; fi
done
echo "Install one (Debian: apt-get install python3 python3-venv) or name one:" \
  "make PYTHON=/path/to/python test" >&2
exit 1
