#!/bin/sh
# Builds the simulator with each seeded bug of this folder, hunts, and prints how many seeds it took to find it. What was found is
# kept in found.tsv, and the table of docs/reliability.md is written from that file and from the heads of the patches.
# usage: prove.sh [SECONDS [BUG ...]]: the time given to each hunt, 600 unless told; and which bugs, all unless told.
# environment: JOBS, how many are built and hunted at once; as many as there are processors unless told.
set -eu

seconds=${1:-600}
[ $# -eq 0 ] || shift
bugs=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$bugs/../../.." && pwd)
jobs=${JOBS:-$(nproc)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Whoever works on the sources meanwhile does not change what is proven.
mkdir "$work/sources"
cp -r "$root/crates" "$root/lab" "$root/Cargo.toml" "$root/Cargo.lock" "$work/sources"
target=${CARGO_TARGET_DIR:-$root/target}/proof
# Built many times and run for a short while.
export CARGO_PROFILE_HUNT_LTO=off CARGO_PROFILE_HUNT_DEBUG=0 CARGO_PROFILE_HUNT_CODEGEN_UNITS=16 CARGO_INCREMENTAL=1
# What a bug leaves unused is no news.
export RUSTFLAGS="${RUSTFLAGS:-} -Awarnings"

# What shows a bug: those of the sockets for tasks, and of parking their loop, show in runs of tasks.
workload() {
    case $1 in
    *async-*) echo async ;;
    *) echo events ;;
    esac
}

# Prints a result, and keeps it as a line of found.tsv.
result() {
    printf '%-46s %-7s %-8s %s\n' "$1" "$2" "$3" "$4"
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" >>"$work/found"
}

# Hunts each of the bugs whose names it reads, in a folder and with a build of its own.
prove() {
    folder=$work/job-$1
    export CARGO_TARGET_DIR=$target/$1
    while read -r name; do
        # Copied anew, so that no bug stays for the next.
        rm -rf "$folder/crates/quoit" "$folder/crates/quoit-async"
        cp -r "$work/sources/crates/quoit" "$work/sources/crates/quoit-async" "$folder/crates"
        patch=$bugs/$name.patch
        workload=$(workload "$name")
        (cd "$folder" && patch -s -p1 <"$patch" && find crates/quoit/src crates/quoit-async/src -newer Cargo.lock -name '*.rs' -exec touch {} +)
        (cd "$folder" && cargo build -q --profile hunt --package quoit-sim)
        found=$(timeout "$seconds" "$CARGO_TARGET_DIR/hunt/quoit-sim" run --workload $workload --seeds 0 2>/dev/null | grep -a -m1 failed || true)
        seed=$(echo "$found" | sed -n 's/^seed \([0-9]*\) .*/\1/p')
        engine=$(echo "$found" | sed -n 's/^seed [0-9]* on \([a-z]*\) .*/\1/p')
        if [ -z "$found" ]; then
            result "$name" - - "not found in $seconds s"
        elif "$work/clean" run --workload $workload --from "$seed" --seeds 1 --engine "$engine" >/dev/null 2>&1; then
            result "$name" "$engine" "$((seed + 1))" "$(echo "$found" | sed 's/^[^:]*: //; s/[	|]/ /g' | cut -c1-90 | sed 's/ *$//')"
        else
            result "$name" - - "not found: seed $seed on $engine fails without it too"
        fi
    done
}

# The table of what was found: what each patch says of itself, and the line of found.tsv.
table() {
    echo '| Bug | Engine | Seeds | How it shows |'
    echo '| --- | --- | ---: | --- |'
    while IFS='	' read -r name engine seeds how; do
        said=$(sed '/^$/,$d' "$bugs/$name.patch" | tr '\n' ' ' | sed 's/[.] *$//')
        tasks=
        [ "$(workload "$name")" = events ] || tasks=', with tasks'
        # Thousands apart, as everywhere in the documents.
        seeds=$(echo "$seeds" | sed ':a; s/\([0-9]\)\([0-9]\{3\}\)\($\|,\)/\1,\2\3/; ta')
        [ "$engine" != uring ] || engine=io_uring
        echo "| $said (\`$name\`$tasks) | $engine | $seeds | $how |"
    done <"$bugs/found.tsv"
}

[ $# -gt 0 ] || set -- $(cd "$bugs" && ls -- *.patch | sed 's/[.]patch$//')
(cd "$work/sources" && CARGO_TARGET_DIR=$target/0 cargo build -q --profile hunt --package quoit-sim)
cp "$target/0/hunt/quoit-sim" "$work/clean"
printf '%s\n' "$@" >"$work/bugs"
: >"$work/found"
job=0
while [ "$job" -lt "$jobs" ]; do
    cp -r "$work/sources" "$work/job-$job"
    awk -v job="$job" -v jobs="$jobs" 'NR % jobs == job' "$work/bugs" | prove "$job" &
    job=$((job + 1))
done
wait
if [ "$(wc -l <"$work/found")" -ne $# ]; then
    echo "prove.sh: a job has ended early: see above" >&2
    exit 2
fi

touch "$bugs/found.tsv"
awk -F '\t' 'NR == FNR { found[$1] = 1; print; next } !($1 in found)' "$work/found" "$bugs/found.tsv" |
    while IFS='	' read -r name rest; do
        [ ! -f "$bugs/$name.patch" ] || printf '%s\t%s\n' "$name" "$rest"
    done | LC_ALL=C sort >"$work/kept"
cp "$work/kept" "$bugs/found.tsv"
table >"$work/table"
page=$root/docs/reliability.md
awk -v table="$work/table" '
    /^<!-- The end of what hunts found -->/ { skipping = 0 }
    !skipping
    /^<!-- What hunts found/ { skipping = 1; print ""; while ((getline line < table) > 0) print line; print "" }
' "$page" >"$work/page"
cp "$work/page" "$page"
! grep -q 'not found' "$work/found"
