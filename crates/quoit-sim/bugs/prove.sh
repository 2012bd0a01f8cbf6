#!/bin/sh
# Builds the simulator with each seeded bug of this folder, hunts, and prints how many seeds it took to find it.
# usage: prove.sh [SECONDS [BUG ...]]: the time given to each hunt, 600 unless told; and which bugs, all unless told.
set -eu

seconds=${1:-600}
[ $# -eq 0 ] || shift
bugs=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$bugs/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$root/crates" "$root/lab" "$root/Cargo.toml" "$root/Cargo.lock" "$work"
# Whoever works on the sources meanwhile does not change what is proven.
cp -r "$work/crates/quoit" "$work/crates/quoit-async" "$work"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/proof"
# Built many times and run for a short while.
export CARGO_PROFILE_HUNT_LTO=off CARGO_PROFILE_HUNT_DEBUG=0 CARGO_PROFILE_HUNT_CODEGEN_UNITS=16 CARGO_INCREMENTAL=1
(cd "$work" && cargo build -q --profile hunt --package quoit-sim)
cp "$CARGO_TARGET_DIR/hunt/quoit-sim" "$work/clean"

missed=0
printf '%-34s %-7s %-8s %s\n' bug engine seeds 'how it showed'
[ $# -gt 0 ] || set -- $(cd "$bugs" && ls -- *.patch | sed 's/[.]patch$//')
for name in "$@"; do
    patch=$bugs/$name.patch
    # Copied anew, so that no bug stays for the next.
    rm -rf "$work/crates/quoit" "$work/crates/quoit-async"
    cp -r "$work/quoit" "$work/quoit-async" "$work/crates"
    # Those of the sockets for tasks show in runs of tasks.
    workload=events
    ! grep -q '^+++ b/crates/quoit-async/' "$patch" || workload=async
    (cd "$work" && patch -s -p1 <"$patch" && find crates/quoit/src crates/quoit-async/src -newer Cargo.lock -name '*.rs' -exec touch {} +)
    (cd "$work" && cargo build -q --profile hunt --package quoit-sim)
    found=$(timeout "$seconds" "$CARGO_TARGET_DIR/hunt/quoit-sim" run --workload $workload --seeds 0 2>/dev/null | grep -m1 failed || true)
    seed=$(echo "$found" | sed -n 's/^seed \([0-9]*\) .*/\1/p')
    engine=$(echo "$found" | sed -n 's/^seed [0-9]* on \([a-z]*\) .*/\1/p')
    if [ -n "$found" ] && ! "$work/clean" run --workload $workload --from "$seed" --seeds 1 --engine "$engine" >/dev/null 2>&1; then
        printf '%-34s %-7s %-8s %s\n' "$name" - - "not found: seed $seed on $engine fails without it too"
        missed=1
    elif [ -n "$found" ]; then
        printf '%-34s %-7s %-8s %s\n' "$name" "$engine" "$((seed + 1))" "$(echo "$found" | sed 's/^[^:]*: //' | cut -c1-90)"
    else
        printf '%-34s %-7s %-8s %s\n' "$name" - - "not found in $seconds s"
        missed=1
    fi
done
exit $missed
