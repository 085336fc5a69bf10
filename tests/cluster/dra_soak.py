# SPDX-License-Identifier: Apache-2.0
"""200 random schedules of claims on the real scheduler: claims of random kinds, claims that the scheduler makes for extended
resources, slices that are deleted, other lists of GPUs, restarts of `ferry dra`, claims that are removed. After each step the
allocations of all claims must fit on the GPUs.

Each schedule has a seed, which a failure names. FERRY_SEED=SEED FERRY_SCHEDULES=1 repeats its steps, though not their timing.
"""

import collections
import concurrent.futures
import copy
import os
import random
import signal
import time
import unittest
from typing import Any

from cluster.claims import (CLAIMS, DRIVER, PODS, SLICES, Api, ListedNode, chosen_by, claim_of, cluster_of_listed_nodes,
                            devices_in, faults, listed_gpu, pod_on, vgpu, vgpu_type)
from cluster.programs import Failure, wait_until

NODES, SCHEDULES, STEPS = 8, int(os.environ.get("FERRY_SCHEDULES", "200")), 5
SEED = int(os.environ.get("FERRY_SEED") or time.time())
TESLA = [vgpu_type(231, "T4-2Q", 2048, most_per_gpu=8), vgpu_type(232, "T4-4Q", 4096, most_per_gpu=4),
         vgpu_type(233, "T4-8Q", 8192, most_per_gpu=2), vgpu_type(234, "T4-16Q", 16384, most_per_gpu=1)]
# Two of a group, whose counters are in one set.
PAIR = [vgpu_type(301, "M10-2Q", 2048), vgpu_type(302, "M10-4Q", 4096)]
# At most three of a type, and memory for four.
ROUNDED = [vgpu_type(401, "R-3Q", 3072, most_per_gpu=3), vgpu_type(402, "R-6Q", 6144, most_per_gpu=2)]
MIXED = [vgpu_type(501, "L4-6Q", 6144, size=2, placements=[0, 2, 4, 6]),
         vgpu_type(502, "L4-12Q", 12288, size=4, placements=[0, 4]), vgpu_type(503, "L4-24Q", 24576, size=8, placements=[0])]
GPUS = [listed_gpu("0000:01:00.0", 11, 16384, TESLA), listed_gpu("0000:02:00.0", 12, 8192, PAIR),
        listed_gpu("0000:03:00.0", 12, 8192, PAIR), listed_gpu("0000:04:00.0", 13, 13000, ROUNDED),
        listed_gpu("10000:05:00.0", 14, 24576, MIXED, mixed_sizes=True), listed_gpu("0000:06:00.0", 15, 8192, [])]
TYPES = [kind["short_name"] for kinds in (TESLA, PAIR, ROUNDED, MIXED) for kind in kinds]
# Extended resources, each of a DeviceClass that the chart makes.
CLASSES = [{"model": "10de:26b9", "extendedResourceName": "example.com/gpu"},
           *({"vgpuType": kind, "extendedResourceName": f"example.com/{kind}"} for kind in ("T4-4Q", "M10-2Q", "R-3Q", "L4-6Q"))]
FULL = 15 + 2 * 6 + 5 + 7 + 5  # devices that a Node publishes


def a_request(rng: random.Random) -> dict[str, Any]:
    anything = chosen_by("whole", "true")
    large = chosen_by("vgpu", f"device.capacity['{DRIVER}'].framebuffer.compareTo(quantity('{rng.choice((3, 8))}Gi')) >= 0")
    some = vgpu(rng.choice(TYPES))
    first = {"firstAvailable": [{"name": "one", **vgpu(rng.choice(TYPES))}, {"name": "two", **anything}]}
    return rng.choice((some, some, some, vgpu(rng.choice(TYPES), count=2), large, anything, first))


def a_pod_by_names(rng: random.Random, node: str, name: str) -> dict[str, Any]:
    """The scheduler makes its claim, with a request for each resource."""
    limits = {kind["extendedResourceName"]: str(rng.randint(1, 2)) for kind in rng.sample(CLASSES, rng.choice((1, 1, 2)))}
    pod = pod_on(node, name, "none")
    del pod["spec"]["resourceClaims"]
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod


class Schedule:
    """A schedule on a Node that has no claims when it begins."""

    def __init__(self, api: Api, node: ListedNode, seed: int, done: collections.Counter[str]) -> None:
        self._api, self._node, self._rng, self._done = api, node, random.Random(seed), done
        self._names = (f"{node.name}-{seed}-{number}" for number in range(1000))
        self._claims: list[str] = []
        self.history: list[str] = []

    def run(self) -> None:
        kinds = (self.allocate, self.remove, self.delete_slices, self.list_others, self.restart)
        for kind in (self.allocate, *self._rng.choices(kinds, (3, 2, 1, 1, 1), k=STEPS - 1)):
            self.history.append(kind.__name__)
            self._done[kind.__name__] += 1
            kind()
            self.check()
        self.history.append("the end")
        for name in list(self._claims):
            self._remove(name)
        self._node.list_gpus(*GPUS)
        wait_until("the Node is as before", lambda: not self._api.allocations(self._node.name) and self._is_full(), 60)

    # --- steps -------------------------------------------------------------------------------------------------------

    def allocate(self) -> None:
        """Several claims at once, each with one request or two."""
        names = []
        for _ in range(self._rng.randint(1, 4)):
            names.append(next(self._names))
            if self._rng.random() < 0.25:
                self._claims.append(names[-1])
                self._api.create(PODS, a_pod_by_names(self._rng, self._node.name, names[-1]))
                self._done["pods with extended resources"] += 1
                continue
            requests = {f"r{number}": a_request(self._rng) for number in range(self._rng.choice((1, 1, 1, 2)))}
            self._claims.append(names[-1])
            self._api.create(CLAIMS, claim_of(names[-1], requests))
            self._api.create(PODS, pod_on(self._node.name, names[-1], names[-1]))
        if self._rng.random() < 0.3:
            self.delete_slices()  # while the scheduler looks at them
        wait_until("the scheduler has tried each pod", lambda: all(map(self._is_seen, names)), 60)
        self._done["claims"] += len(names)

    def remove(self) -> None:
        """A third of the claims, with their pods."""
        for name in self._rng.sample(self._claims, (len(self._claims) + 2) // 3):
            self._remove(name)

    def delete_slices(self) -> None:
        """All of the Node's, or one."""
        alone, which = self._rng.random() < 0.5, self._rng.random()
        found = sorted(one["metadata"]["name"] for one in self._api.slices(self._node.name))
        chosen = found[int(which * len(found)):][:1] if alone else found
        for name in chosen:
            self._api.remove(f"{SLICES}/{name}")

    def list_others(self) -> None:
        """Some types and GPUs are no longer for claims, or are so again. One GPU may have a fault."""
        gpus = copy.deepcopy(GPUS)
        for gpu in gpus:
            gpu["whole"] = self._rng.random() < 0.7
            gpu["for_dra"] = self._rng.random() < 0.8
            gpu["health"] = self._rng.choice(("ready", "ready", "ready", "ready", "unhealthy"))
            for kind in gpu["types"]:
                kind["allowed"] = self._rng.random() < 0.6
        self._node.list_gpus(*gpus)

    def restart(self) -> None:
        """It ends by SIGTERM or SIGKILL; at times its slices are deleted meanwhile."""
        dra, how = self._node.dra, self._rng.choice((signal.SIGTERM, signal.SIGKILL))
        dra.stop(how)
        if self._rng.random() < 0.5:
            self.delete_slices()
        dra.start()

    def _remove(self, name: str) -> None:
        """The garbage collector removes a claim that the scheduler has made, since the pod owns it."""
        self._claims.remove(name)
        self._api.remove(f"{PODS}/{name}")
        self._api.remove(f"{CLAIMS}/{name}")

    # --- looks -------------------------------------------------------------------------------------------------------

    def _is_seen(self, pod: str) -> bool:
        """The scheduler has bound it, or has found nothing for it."""
        found = self._api.get(f"{PODS}/{pod}")
        return bool(found["spec"].get("nodeName") or found["status"].get("conditions"))

    def _is_full(self) -> bool:
        devices = self._api.devices(self._node.name)
        return len(devices) == FULL and not any(device.get("taints") for device in devices.values())

    def check(self) -> None:
        """Also that allocated devices are published, as soon as all slices are there again."""
        self._observe()

        def is_published() -> bool:
            taken = self._observe()
            devices = devices_in(self._api.slices(self._node.name))
            return bool(devices) and {device for device, _ in taken} <= set(devices)
        wait_until("all devices that are allocated are published", is_published, 30)
        self._done["observations with allocations"] += bool(self._observe())

    def _observe(self) -> list[tuple[str, str]]:
        taken = self._api.allocations(self._node.name)
        self._done["looks at claims for extended resources"] += any("-extended-resources-" in claim for _, claim in taken)
        if found := faults(GPUS, taken):
            raise Failure("; ".join(found))
        self._done["looks"] += 1
        return taken


class DraSoak(unittest.TestCase):
    def setUp(self) -> None:
        self.kubernetes = cluster_of_listed_nodes(CLASSES)

    def run_on(self, node: ListedNode, seeds: range) -> collections.Counter[str]:
        """The schedules of a Node, one after the other."""
        api, done = Api(self.kubernetes), collections.Counter[str]()
        for seed in seeds:
            schedule = Schedule(api, node, seed, done)
            try:
                schedule.run()
            except Exception as error:
                raise Failure(f"FERRY_SEED={seed} FERRY_SCHEDULES=1: {', '.join(schedule.history)}: {error}") from error
            done["schedules"] += 1
        return done

    def test_no_device_is_allocated_twice(self) -> None:
        print(f"seed {SEED}", flush=True)
        before = time.monotonic()
        nodes = []
        for number in range(min(NODES, SCHEDULES)):
            nodes.append(ListedNode(self.kubernetes, f"listed-{number}"))
            nodes[-1].list_gpus(*GPUS)
            nodes[-1].dra.start()
            self.addCleanup(nodes[-1].dra.stop)
        for node in nodes:
            node.wait_until_published()
        seeds = [range(SEED, SEED + SCHEDULES)[number::len(nodes)] for number in range(len(nodes))]
        with concurrent.futures.ThreadPoolExecutor(NODES) as pool:
            done = sum(pool.map(self.run_on, nodes, seeds), collections.Counter[str]())
        print(", ".join(f"{count} {what}" for what, count in done.items()), f"in {time.monotonic() - before:.0f} s")
        self.assertEqual(SCHEDULES, done["schedules"])
        self.assertGreater(done["observations with allocations"], SCHEDULES)
        if SCHEDULES > 20:  # a single one need not have such a pod
            self.assertGreater(done["looks at claims for extended resources"], 0)
