# shellcheck shell=bash disable=SC2154 # common.sh assigns root, cache and jobs
# SPDX-License-Identifier: Apache-2.0
# Programs of the tests that are made once and then stay in the cache. Sourced after common.sh.

# make_once FOLDER TITLE STAGE...: makes FOLDER by the functions STAGE, and prints it. They work in $work and leave the
# result in $work/out. With $find set it only looks. Two runs at the same time make it once.
make_once() {
    local folder=$1 title=$2 stage status
    shift 2
    if [ -d "$folder" ]; then echo "$folder" && return; fi
    [ -z "${find-}" ] || return 1
    mkdir -p "$(dirname "$folder")"
    local lock
    exec {lock}>"$folder.lock"
    flock "$lock"
    if [ -d "$folder" ]; then echo "$folder" && return; fi # another run has made it meanwhile
    work=$(dirname "$folder")/.$(basename "$folder").new
    local log=$folder.log
    rm -rf "$work" "$log"
    mkdir -p "$work/out"
    trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
    for stage in "$@"; do
        printf '%s: %s\n' "$title" "$stage" >&2
        # In a shell of its own and not after `||`, because bash ignores set -e there.
        set +e
        (set -e; "$stage") >>"$log" 2>&1
        status=$?
        set -e
        if [ "$status" -ne 0 ]; then
            tail -n 15 "$log" >&2
            die "$title: the stage $stage failed; the whole output is in $log"
        fi
    done
    mv "$work/out" "$folder"
    echo "$folder"
}

# unpack_debian SUITE PACKAGE...: puts the files of Debian packages below $work/tree. Nothing is installed.
unpack_debian() {
    local suite=$1 archive
    shift
    mkdir -p "$work/packages" "$work/tree"
    of_suite "$work" "$suite" update
    (cd "$work/packages" && of_suite "$work" "$suite" download "$@")
    for archive in "$work"/packages/*.deb; do dpkg-deb -x "$archive" "$work/tree"; done
    rm -rf "$work/packages"
}

# find_go VERSION: sets $go to a Go of at least this version: the machine's, or Debian's, which it unpacks below $work.
find_go() {
    local wanted=$1 found
    found=$(go env GOVERSION 2>/dev/null | sed 's/^go//') || :
    if printf '%s\n' "$wanted" "${found:-0}" | sort -CV; then
        go=$(command -v go)
        return
    fi
    local name=${wanted%.*} # 1.26 of 1.26.6
    go=$work/tree/usr/lib/go-$name/bin/go
    [ -x "$go" ] || unpack_debian trixie-backports "golang-$name-go" "golang-$name-src"
}

# build_go FOLDER FLAGS PACKAGE...: compiles programs of the Go module in FOLDER into $work/out. The module's go.sum pins
# each source by its digest.
build_go() {
    local module=$1 flags=$2
    shift 2
    in_go_module "$module" build -mod=readonly -trimpath -buildvcs=false -p "$jobs" -ldflags "-s -w $flags" -o "$work/out/" "$@"
}

# go_module FOLDER MODULE: prints the folder with the sources of MODULE, which the Go module in FOLDER pins.
go_module() {
    in_go_module "$1" mod download -json "$2" | jq -re .Dir
}

in_go_module() {
    local module=$1
    shift
    (cd "$module" && GOTOOLCHAIN=local GOFLAGS=-modcacherw CGO_ENABLED=0 GOMODCACHE=${GOMODCACHE:-$work/modules} \
        GOCACHE=${GOCACHE:-$work/objects} "$go" "$@")
}

# make_pod_image FILE BUSYBOX: an image of busybox for `ctr images import`, as `docker save` writes it. It also serves as
# the pause container of each pod.
make_pod_image() {
    local file=$1 busybox=$2 root=$work/rootfs applet digest
    mkdir -p "$root"/{bin,dev,etc,proc,root,run,sys,tmp,usr/lib,usr/lib64}
    ln -s usr/lib "$root/lib" # so that a pod can mount a host's /usr
    ln -s usr/lib64 "$root/lib64"
    cp "$busybox" "$root/bin/busybox"
    for applet in $("$root/bin/busybox" --list | grep -vx busybox); do ln -s busybox "$root/bin/$applet"; done
    cd "$work"
    tar -C "$root" --sort=name --owner=0 --group=0 --mtime=@0 -cf layer.tar .
    digest=$(sha256sum layer.tar | cut -d' ' -f1)
    jq -n --arg layer "sha256:$digest" '{architecture: "amd64", os: "linux",
        rootfs: {type: "layers", diff_ids: [$layer]},
        config: {Entrypoint: ["sleep", "infinity"], Env: ["PATH=/bin:/usr/bin:/usr/sbin"]}}' >config.json
    jq -n '[{Config: "config.json", RepoTags: ["localhost/busybox:1"], Layers: ["layer.tar"]}]' >manifest.json
    tar -cf "$file" manifest.json config.json layer.tar
}
