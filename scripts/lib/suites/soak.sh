# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# Large numbers. Each part has its minutes and does as much as fits, or with --all the whole; another commit begins elsewhere.

prepare() {
    install_packages cluster node soak unit
    build release cluster-programs node-programs unit-programs
    "$root/tests/node/prepare"
    # run says what it leaves out.
    "$root/scripts/lib/kubernetes" >/dev/null || true
    "$root/scripts/lib/helm" >/dev/null || true
    "$root/scripts/lib/containerd-releases" >/dev/null || true
}

# for_minutes [--all] MINUTES SHARDS COMMAND...: runs shards of a test program, as many as fit, each with $jobs at a time. The
# first failure ends it. With --all it fails unless all of them fit.
for_minutes() {
    local all='' end shards first done=0 job running status=0
    if [ "$1" = --all ]; then all=yes && shift; fi
    end=$((SECONDS + $1 * 60)) shards=$2
    shift 2
    first=$(git -C "$root" rev-list --count HEAD 2>/dev/null || echo 0)
    while [ "$done" -lt "$shards" ] && [ "$SECONDS" -lt "$end" ] && [ "$status" -eq 0 ]; do
        running=()
        for ((job = 0; job < jobs && done < shards; ++job, ++done)); do
            GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$(((first + done) % shards)) "$@" &
            running+=($!)
        done
        for job in "${running[@]}"; do wait "$job" || status=1; done
    done
    printf '%s of %s shards\n' "$done" "$shards"
    if [ -n "$all" ] && [ "$done" -lt "$shards" ]; then status=1; fi
    return "$status"
}

# random_trees: a shard of 100,000 hosts. They are one test, which GoogleTest does not divide.
random_trees() {
    local count=$((100000 / GTEST_TOTAL_SHARDS))
    env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX FERRY_RANDOM_TREES_FROM=$((GTEST_SHARD_INDEX * count)) FERRY_RANDOM_TREES=$count \
        "$root/build/tests/vfio_test" --gtest_brief=1 --gtest_filter='RandomTrees.*'
}

run() {
    local kubernetes containerds
    check 'each fault of each change of a policy' for_minutes 6 2 "$root/build/tests/node_fault_test" --gtest_brief=1
    check '10,000 schedules of the agent, 100 over TLS, 1,000 of several' for_minutes 6 5 \
        env FERRY_SCHEDULES=10000 "$root/build/tests/agent_loop_test" --gtest_brief=1 --gtest_filter='*Schedules*'
    check '10,000 schedules of claims by DRA, twice' for_minutes --all 30 50 \
        env FERRY_SCHEDULES=10000 "$root/build/tests/dra_test" --gtest_brief=1 --gtest_filter='*Schedules*'
    check '100,000 hosts with random contents' for_minutes 3 50 random_trees
    check 'every way between 20 vGPU profiles, each write disturbed' for_minutes 4 100 \
        env FERRY_EVERY_WAY=1 "$root/build/tests/vgpu_dm_test" --gtest_brief=1 --gtest_filter='Ways/DisturbedTransition.*'
    if containerds=$("$root/scripts/lib/containerd-releases"); then
        check 'each release of containerd, started with each configuration' env FERRY_EVERY_START=1 FERRY_CONTAINERDS="$containerds" \
            "$root/build/tests/kata_manager_test" --gtest_brief=1 --gtest_filter='RealContainerd.RunsWithWhatIsPlanned'
    else
        skipped 'a release of containerd cannot be had, and not each is started with each configuration'
    fi
    if kubernetes=$("$root/scripts/lib/kubernetes" --find); then
        FERRY_KUBERNETES=$kubernetes check "the chart's containers" "$root/tests/node/run" "$root/tests/node/scenarios/soak/container.toml"
        FERRY_KUBERNETES=$kubernetes check 'a driver container' "$root/tests/node/run" "$root/tests/node/scenarios/soak/driver-container.toml"
        check 'the agents of 1,000 nodes, a rollout, 200 schedules of claims' unittests "$root/tests/cluster/run" --soak --kubernetes "$kubernetes"
    else
        skipped "the chart's containers, a driver container, the agents of 1,000 nodes, a rollout, schedules of claims: there is no Kubernetes to be had"
    fi
}
