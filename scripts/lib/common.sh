# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What the scripts share: where things are, stages with their times, the packages of a purpose.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ferry
jobs=$(nproc)
export CCACHE_DIR=$cache/ccache CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_MAXSIZE=6G
# No header of this tree has a time of day in it. Without these ccache refuses files that were just written, and files that
# read a precompiled header.
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
# What clang's sanitizers name functions and lines with: g++ brings it along.
export ASAN_SYMBOLIZER_PATH=${ASAN_SYMBOLIZER_PATH:-/usr/bin/addr2line}

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# stage NAME COMMAND...: runs it, says how long it took.
stage() {
    local name=$1 begin=$SECONDS status=0
    shift
    printf '== %s\n' "$name"
    "$@" || status=$?
    local outcome='done'
    [ "$status" -eq 0 ] || outcome="failed ($status)"
    printf '== %s: %s in %s s\n' "$name" "$outcome" "$((SECONDS - begin))"
    return $status
}

# missing_packages PURPOSE...: prints those of scripts/lib/packages.PURPOSE that are not installed, one a line.
missing_packages() {
    local purpose package
    for purpose in "$@"; do grep -v '^#' "$root/scripts/lib/packages.$purpose"; done | while read -r package; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s\n' "$package"
    done
}

# install_packages PURPOSE...: installs what missing_packages names. Asks the package manager nothing when all is there.
install_packages() {
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -eq 0 ] && return 0
    [ "$(id -u)" -eq 0 ] || die "these packages are missing, and only root can install them: ${missing[*]}"
    printf 'installing %s\n' "${missing[*]}"
    apt-get update -qq
    local log
    log=$(mktemp)
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
        { tail -n 20 "$log" >&2; rm -f "$log"; die "apt-get install failed"; }
    rm -f "$log"
}

# build_progress: reads Ninja's lines and shows on stderr how far the build is: on one line of a terminal, else in a line
# every 30 s.
build_progress() {
    local line counted='' shown=$SECONDS
    while IFS= read -r line; do
        [[ $line =~ ^\[[0-9]+/[0-9]+\] ]] || continue
        counted=${BASH_REMATCH[0]}
        if [ -t 2 ]; then printf '\r%s ' "$counted" >&2; elif [ $((SECONDS - shown)) -ge 30 ]; then
            printf '%s\n' "$counted" >&2
            shown=$SECONDS
        fi
    done
    if [ -n "$counted" ] && [ -t 2 ]; then printf '\r\e[K' >&2; fi
}

# scripts/build builds these programs, and scripts/release releases them.
release_programs=(ferry ferry-virt ferry-fetch ferry-agent ferry-dra kubectl-ferry)

# tree_of FOLDER: prints the name that git has for the files of this checkout as they are now, committed or not. A commit with
# equal files has the same name: git rev-parse COMMIT^{tree}. Writes nothing into the checkout. Fails where git has none.
tree_of() {
    local scratch objects status=0
    objects=$(git -C "$1" rev-parse --path-format=absolute --git-path objects 2>/dev/null) || return 1
    scratch=$(mktemp -d)
    cp "$(git -C "$1" rev-parse --path-format=absolute --git-path index)" "$scratch/index" 2>/dev/null || true
    (
        export GIT_INDEX_FILE=$scratch/index GIT_OBJECT_DIRECTORY=$scratch/objects GIT_ALTERNATE_OBJECT_DIRECTORIES=$objects
        mkdir "$scratch/objects"
        git -C "$1" -c advice.addEmbeddedRepo=false add --all 2>/dev/null && git -C "$1" write-tree
    ) || status=$?
    rm -rf "$scratch"
    return $status
}

# note_programs FOLDER TREE TARGET...: notes in FOLDER/built-from, for each target that is a program of a release, from which
# files it was built: a line "TREE DIGEST PROGRAM". scripts/release reads it.
note_programs() {
    local notes=$1/built-from folder=$1 tree=$2 target
    shift 2
    touch "$notes"
    for target in "$@"; do
        [[ " ${release_programs[*]} " == *" $target "* ]] || continue
        sed -i "/ $target\$/d" "$notes"
        printf '%s %s %s\n' "$tree" "$(sha256sum <"$folder/bin/$target" | cut -d' ' -f1)" "$target" >>"$notes"
    done
}

# build PRESET [TARGET...]: installs the packages of a build, configures when it must, builds what is out of date.
build() {
    local preset=$1 folder=$root/build-$1
    local log tree
    install_packages build
    log=$(mktemp)
    shift
    [ "$preset" = release ] && folder=$root/build
    mkdir -p "$CCACHE_DIR"
    tree=$(tree_of "$root") || tree=
    # Anew, too, where a preset may have another compiler or other flags than the folder was made with: --fresh, since CMake
    # itself fails half-way through a change of compiler.
    if [ ! -f "$folder/build.ninja" ] || [ "$root/CMakePresets.json" -nt "$folder/build.ninja" ]; then
        (cd "$root" && cmake --fresh --preset "$preset" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache) >"$log" 2>&1 ||
            { cat "$log" >&2; rm -f "$log"; die "cmake failed"; }
    fi
    if ! (set -o pipefail; NINJA_STATUS='[%f/%t] ' cmake --build "$folder" --parallel "$jobs" ${1:+--target "$@"} 2>&1 | tee "$log" | build_progress); then
        grep -vE '^\[[0-9]+/[0-9]+\] ' "$log" >&2
        rm -f "$log"
        die "the build of preset $preset failed"
    fi
    rm -f "$log"
    # Nothing is noted of files that changed while the compiler read them.
    if [ "$preset" = release ] && [ -n "$tree" ] && [ "$(tree_of "$root")" = "$tree" ]; then note_programs "$folder" "$tree" "$@"; fi
}

# of_suite FOLDER SUITE WORD...: apt-get for a suite of this machine's mirror, packages and sources, with its lists below
# FOLDER, so that the machine's own stay as they are.
of_suite() {
    local folder=$1/$2 suite=$2 mirror
    shift 2
    mkdir -p "$folder"/{lists/partial,cache/archives/partial}
    : >"$folder/status"
    # shellcheck disable=SC2016 # apt-get expands these itself
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Component: main' | head -n 1)
    printf 'Types: deb deb-src\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n' "${mirror:?no mirror}" "$suite" \
        /usr/share/keyrings/debian-archive-keyring.gpg >"$folder/debian.sources"
    apt-get -q -o Dir::State="$folder" -o Dir::State::status="$folder/status" -o Dir::Cache="$folder/cache" \
        -o Dir::Etc::SourceList="$folder/debian.sources" -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root "$@"
}
