# Sourced by ci/build and ci/test: makes .venv when there is none and installs what is asked for.
#
# MONO_VENV   another directory for the virtual environment
# MONO_PYTHON another Python (3.10 to 3.13)

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 4; }

# Prints the Python to use: the one asked for, else the newest supported one that is here.
find_python() {
  local candidate
  for candidate in ${MONO_PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "no Python 3.10 to 3.13 found; install one (Debian and Ubuntu: python3 python3-venv) or set MONO_PYTHON"
}

make_venv() {
  local python=$1 venv=$2 options=()
  # An engine image has its own torch (a ROCm build), vLLM and AITER: use them, replace nothing.
  if "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'; then
    options+=(--system-site-packages)
  fi
  say "making $venv with $("$python" --version)"
  "$python" -m venv "${options[@]}" "$venv" ||
    fail "no virtual environment can be made; on Debian and Ubuntu: apt install python3-venv"
}

install_torch() {
  local venv=$1
  "$venv/bin/python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' && return
  # FlyDSL imports torch. A CPU build is a tenth of the download of the default one.
  "$venv/bin/python" -m pip install --quiet 'torch==2.13.0+cpu' 2>/dev/null && return
  say "note: the package index in use has no CPU build of torch 2.13.0, so pip takes its default one;"
  say "      on x86-64 that brings CUDA packages of about 3 GB. To avoid them, point pip to an index that"
  say "      has CPU builds (PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS) and run this again."
  "$venv/bin/python" -m pip install --quiet 'torch==2.13.0'
}

# install EXTRAS: an editable install of this project with these extras; a stamp skips repeats.
install() {
  local extras=$1 venv=${MONO_VENV:-.venv} stamp
  [ -x "$venv/bin/python" ] || make_venv "$(find_python)" "$venv"
  stamp="$venv/.installed-$(cat pyproject.toml ci/environment.sh | sha256sum | cut -c1-16)-$extras"
  if [ ! -e "$stamp" ]; then
    say "installing mono-build[$extras] into $venv"
    export PIP_DISABLE_PIP_VERSION_CHECK=1
    install_torch "$venv"
    "$venv/bin/python" -m pip install --quiet --editable ".[$extras]"
    touch "$stamp"
  fi
  PATH="$(cd "$venv" && pwd)/bin:$PATH"
  export PATH
}

# flydsl_python VERSION: prints the Python of an environment with just this FlyDSL; made when there is none.
flydsl_python() {
  local version=$1 venv
  venv="${MONO_BENCH_VENVS:-$PWD}/.venv-flydsl-$version"
  [ -x "$venv/bin/python" ] || make_venv "$(find_python)" "$venv" >&2
  if ! [ -e "$venv/.installed" ]; then
    say "installing FlyDSL $version into $venv"
    install_torch "$venv" >&2
    "$venv/bin/python" -m pip install --quiet "flydsl==$version" numpy >&2
    touch "$venv/.installed"
  fi
  printf '%s\n' "$venv/bin/python"
}
