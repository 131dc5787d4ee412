# Shared by the scripts; sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps="$root/.deps"

say() { printf '\n== %s\n' "$*"; }
note() { printf '   %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

refuse() {
  printf "error: unknown argument '%s'; see scripts/%s --help\n" "$1" "$(basename "$0")" >&2
  exit 2
}

# The comment at the top of the script that was called is its help.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

# As many compilers at once as there are cores, and memory for: one that includes LibTorch may take 2 GiB.
parallel() {
  local cores gib
  cores=$(nproc)
  gib=$(awk '/^MemAvailable:/ { print int($2 / 1048576 / 2) }' /proc/meminfo)
  [ "$gib" -lt 1 ] && gib=1
  echo "${REPRISE_JOBS:-$((cores < gib ? cores : gib))}"
}

# configure <preset> [<cmake option>...]; what cmake says is shown where it fails.
configure() {
  local preset=$1 folder log
  shift
  folder=$(build_folder "$preset")
  log=$(mktemp)
  local options=(--preset "$preset" "$@")
  case $preset in
    default | clang)
      options+=("-DCMAKE_PREFIX_PATH=$REPRISE_TORCH_PREFIX")
      # CMake remembers pieces of the LibTorch that it found: another one needs a fresh start.
      if [ -f "$folder/CMakeCache.txt" ] && ! grep -qxF "CMAKE_PREFIX_PATH:UNINITIALIZED=$REPRISE_TORCH_PREFIX" "$folder/CMakeCache.txt"; then
        options+=(--fresh)
      fi
      ;;
  esac
  if ! (cd "$root" && cmake "${options[@]}") >"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    fail "cmake --preset $preset failed; what it said is above"
  fi
  grep -E '^-- Reprise|Warning' "$log" | sed 's/^/   /' || true
  rm -f "$log"
}

# build <preset> [<target>...]
build() {
  local preset=$1
  shift
  local options=(--build "$(build_folder "$preset")" --parallel "$(parallel)")
  [ $# -gt 0 ] && options+=(--target "$@")
  cmake "${options[@]}" || fail "building $preset failed; what the compiler said is above"
}

build_folder() { if [ "$1" = default ]; then echo "$root/build"; else echo "$root/build-$1"; fi; }

# Runs scripts/setup and takes over what it found.
setup() {
  "$root/scripts/setup" "$@"
  # shellcheck disable=SC1091
  if [ -f "$deps/env.sh" ]; then . "$deps/env.sh"; fi
}

# find_pip <folder>: sets pip to the command that downloads wheels into that folder.
find_pip() {
  local python
  for python in python3 "$deps/venv/bin/python"; do
    if "$python" -m pip --version >/dev/null 2>&1; then
      pip=("$python" -m pip download --disable-pip-version-check --no-input -q --only-binary=:all: -d "$1")
      return
    fi
  done
  fail "no Python with pip was found" "Debian has it as the package python3-pip; scripts/setup makes one in .deps/venv."
}

# unpack_wheels <folder of wheels> <folder>: all that have been downloaded, and then the wheels go.
unpack_wheels() {
  local wheel
  for wheel in "$1"/*.whl; do
    "${pip[0]}" -m zipfile -e "$wheel" "$2"
    rm "$wheel"
  done
}

results=()
all_passed=yes

# run_tests <preset> <ctest option>...; goes on after a failure, so that one run tells everything.
run_tests() {
  local preset=$1 log
  shift
  log=$(mktemp)
  ctest --test-dir "$(build_folder "$preset")" --output-on-failure --no-tests=error -j "$(parallel)" "$@" 2>&1 | tee "$log" || all_passed=no
  results+=("$preset: $(grep -E 'tests passed|tests failed|No tests' "$log" | tail -n 1)")
  rm -f "$log"
}

# The last lines of scripts/test and .ci/run: what ctest said, preset by preset. Fails where a test did.
print_results() {
  say "Result, after $(($1 / 60)) min $(($1 % 60)) s"
  printf '   %s\n' "${results[@]}"
  if [ "$all_passed" = no ]; then fail "some tests failed; they are named above"; fi
}
