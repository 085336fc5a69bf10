# SPDX-License-Identifier: Apache-2.0
"""The rights of the chart's containers, compared with the table of SECURITY.md and with rights that no container may have."""

import re
import unittest
from typing import Any

import yaml

import chart

TITLE = "## What the chart's containers have"
# The value to set for each "with `VALUE`" of the table.
SWITCHES: dict[str, dict[str, Any]] = {
    "hostd.hostTools": {"hostd": {"hostTools": True}},
    "hostd.systemd": {"hostd": {"systemd": True}},
    "hostd.privileged": {"hostd": {"privileged": True}},
    "hostd.extraCapabilities": {"hostd": {"extraCapabilities": ["SYS_ADMIN", "SYS_RAWIO"]}},
    "plugin.pluginWatcher": {"plugin": {"pluginWatcher": True}},
    "kata.enabled": {"kata": {"enabled": True, "readyNodesOnly": False}},
    "kata.readyNodesOnly": {"kata": {"enabled": True, "readyNodesOnly": True}},
    "kata.install": {"kata": {"enabled": True, "readyNodesOnly": True,
                              "install": {"enabled": True, "pullSecrets": ["kata-pull"]}}},
    "gpuOperator.enabled": {"gpuOperator": {"enabled": True}},
    "dra.enabled": {"dra": {"enabled": True}},
    "agent.metrics": {"agent": {"metrics": {"enabled": True, "tlsSecret": "tls", "tokenSecret": "token"}}},
}
# The switches that a switch needs.
NEEDS = {"kata.readyNodesOnly": {"kata.enabled"}, "kata.install": {"kata.enabled", "kata.readyNodesOnly"}}
OFF: dict[str, Any] = {"hostd": {"systemd": False}}

# Container, what it has, rw or ro or nothing.
Right = tuple[str, str, str]


def table() -> dict[Right, str]:
    """Right -> the switch that it comes with, or nothing."""
    text = (chart.REPOSITORY / "SECURITY.md").read_text().split(TITLE)[1].split("\n## ")[0]
    out: dict[Right, str] = {}
    container = ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 4 or cells[0] in ("container", "---"):
            continue
        container = cells[0] or container
        switch = re.search(r"with `([\w.]+)`", cells[2])
        mode = cells[2].split(",")[0].strip()
        right = (container, cells[1].replace("`", ""), mode if mode in ("rw", "ro") else "")
        assert right not in out, f"{right} stands twice"
        out[right] = switch[1] if switch else ""
    return out


def rights(objects: list[chart.Object]) -> set[Right]:
    out: set[Right] = set()
    for name, container in chart.containers_of(objects).items():
        context = container["securityContext"]
        for capability in context.get("capabilities", {}).get("add", []):
            out.add((name, f"CAP_{capability}", ""))
        if context["privileged"]:
            out.add((name, "privileged", ""))
        if "appArmorProfile" in context:
            out.add((name, f"AppArmor {context['appArmorProfile']['type']}", ""))
        for mount in container["volumeMounts"]:
            path = mount["mountPath"]
            what = "the service account's token" if mount["name"] == "token" else path.removeprefix("/host") or "/"
            out.add((name, what, "ro" if mount.get("readOnly") else "rw"))
    return out


ATTACKERS = "## Who can attack, and with what result"


class AttackersTest(unittest.TestCase):
    def test_each_test_that_the_table_names_exists(self) -> None:
        text = (chart.REPOSITORY / "SECURITY.md").read_text().split(ATTACKERS)[1].split("\n## ")[0]
        tests = chart.REPOSITORY / "tests"
        sources = "\n".join(file.read_text() for file in sorted(tests.rglob("*_test.cpp")))
        known = {(suite, name) for suite, name in re.findall(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)", sources)}
        suites = {suite for suite, _ in known}
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")]
        self.assertGreater(len(rows), 7)
        for attacker, *cells in rows:
            for name in re.findall(r"`([^`]+)`", " ".join(cells)):
                with self.subTest(attacker=attacker, name=name):
                    if match := re.fullmatch(r"([A-Z]\w+)(?:\.([A-Z]\w+))?", name):
                        self.assertIn(match[1], suites)
                        self.assertTrue(match[2] is None or (match[1], match[2]) in known)
                    if name.startswith("tests/"):
                        self.assertTrue((chart.REPOSITORY / name).is_file())
            for name in re.findall(r"scenario `([^`]+)`", " ".join(cells)):
                self.assertTrue(list((tests / "node/scenarios").rglob(f"{name}.toml")), name)


class RightsTest(unittest.TestCase):
    def test_the_table_has_each_right(self) -> None:
        listed = table()
        self.assertEqual(set(listed.values()) - {""}, set(SWITCHES))
        bare = rights(chart.render(OFF))
        self.assertEqual(bare, {right for right, switch in listed.items() if not switch})
        for switch, values in SWITCHES.items():
            with self.subTest(switch=switch):
                more = rights(chart.render({**OFF, **{key: {**OFF.get(key, {}), **below}
                                                      for key, below in values.items()}})) - bare
                self.assertEqual(more, {right for right, of in listed.items() if of in {switch} | NEEDS.get(switch, set())})

    def test_a_mount_has_the_hosts_path(self) -> None:
        for file in chart.SAMPLES:
            objects = chart.render(chart.sample(file))
            kubelet = chart.paths(chart.sample(file))["kubelet"]
            used: dict[str, set[str]] = {}
            for name, container in chart.containers_of(objects).items():
                volumes = chart.volumes_of(objects, name)
                for mount in container["volumeMounts"]:
                    used.setdefault(chart.component_of(name), set()).add(mount["name"])
                    if "emptyDir" in volumes[mount["name"]] or mount["name"] == "no-hostd-files":
                        self.assertTrue(mount["readOnly"])
                        continue
                    # The right is about the cluster, not about the host.
                    if "hostPath" not in volumes[mount["name"]]:
                        self.assertTrue(mount["readOnly"])
                        self.assertIn(name, ("agent", "dra"))
                        continue
                    inside = mount["mountPath"].removeprefix("/host") or "/"
                    # Where every kubelet has it.
                    there = inside if inside.endswith("/device-plugins") else inside.replace("/var/lib/kubelet", kubelet)
                    self.assertEqual(volumes[mount["name"]]["hostPath"]["path"], there, file.name)
            for component, names in used.items():
                there_are = {one["name"] for one in chart.pod_of(objects, component)["spec"]["volumes"]}
                self.assertEqual(names, there_are, file.name)

    def test_the_plugin_has_no_record_of_hostd(self) -> None:
        """Nor of a hostd that runs by its unit: one user has both, so the records' modes keep nothing from the plugin."""
        for enabled in (True, False):
            objects = chart.render({"hostd": {"enabled": enabled}})
            (mount,) = [one for one in chart.containers_of(objects)["plugin"]["volumeMounts"]
                        if one["mountPath"] == "/host/run/ferry/hostd"]
            self.assertTrue(mount["readOnly"])
            # The kubelet makes the empty folder, and with it the mount point.
            self.assertEqual(chart.volumes_of(objects, "plugin")[mount["name"]],
                             {"name": mount["name"], "hostPath": {"path": "/run/ferry/hostd/empty", "type": "DirectoryOrCreate"}})

    def test_the_plugin_and_the_agent_see_writes_that_hang(self) -> None:
        """The mount that leads to the folder of these records is the host's folder."""
        source = (chart.REPOSITORY / "hostfs/stuck_writes.cpp").read_text()
        (folder,) = re.findall(r'kDirectory = "([^"]+)"', source)
        for enabled in (True, False):
            objects = chart.render({"hostd": {"enabled": enabled}})
            for name in ("plugin", "agent"):
                above = [one for one in chart.containers_of(objects)[name]["volumeMounts"]
                         if f"/host/{folder}/".startswith(one["mountPath"] + "/")]
                mount = max(above, key=lambda one: len(one["mountPath"]))
                self.assertEqual(chart.volumes_of(objects, name)[mount["name"]]["hostPath"]["path"],
                                 mount["mountPath"].removeprefix("/host"), (name, enabled))

    def test_only_a_plugin_for_kata_mounts_the_cdi_folder(self) -> None:
        for mode, has in (("kubevirt", False), ("kata", True), ("both", True)):
            mounts = chart.containers_of(chart.render({"plugin": {"mode": mode}}))["plugin"]["volumeMounts"]
            self.assertEqual("/host/var/run/cdi" in [mount["mountPath"] for mount in mounts], has, mode)

    def test_no_container_has_forbidden_rights(self) -> None:
        for file in chart.SAMPLES:
            objects = chart.render(chart.sample(file))
            for component in chart.daemon_sets(objects):
                pod = chart.pod_of(objects, component)["spec"]
                self.assertIs(pod["automountServiceAccountToken"], False)
                self.assertNotIn("hostIPC", pod)
            for name, container in chart.containers_of(objects).items():
                with self.subTest(values=file.name, container=name):
                    context = container["securityContext"]
                    self.assertIs(context["readOnlyRootFilesystem"], True)
                    on_request = name == "hostd" and (chart.sample(file).get("hostd") or {}).get("privileged", False)
                    self.assertIs(context["privileged"], on_request)
                    if not on_request:
                        self.assertIs(context["allowPrivilegeEscalation"], False)
                        self.assertEqual(context["capabilities"]["drop"], ["ALL"])
                        self.assertEqual(context["seccompProfile"], {"type": "RuntimeDefault"})
                    self.assertEqual("token" in [mount["name"] for mount in container["volumeMounts"]],
                                     name in ("agent", "dra"))
                    self.assertLessEqual({"requests", "limits"}, set(container["resources"]))

    def test_the_agent_shares_nothing_with_privileged_pods(self) -> None:
        """A process of the same user without capabilities could read the agent's token while it starts."""
        for file in chart.SAMPLES:
            with self.subTest(values=file.name):
                objects = chart.render(chart.sample(file))
                agent = chart.pod_of(objects, "agent")["spec"]
                context = agent["securityContext"]
                self.assertIs(context["runAsNonRoot"], True)
                user = context["runAsUser"]
                group = context["runAsGroup"]
                values = chart.sample(file).get("agent") or {}
                self.assertEqual((user, group), (values.get("runAsUser", 64711), values.get("runAsGroup", 64711)))
                self.assertEqual(context["fsGroup"], group)
                if "hostd" in chart.containers_of(objects):
                    hostd = chart.pod_of(objects, "node")["spec"]
                    self.assertIn(group, hostd["securityContext"]["supplementalGroups"])
                    self.assertIn(f"--agent-group={group}", chart.containers_of(objects)["hostd"]["args"])
                self.assertNotIn("runAsUser", agent["containers"][0]["securityContext"])
                bound = {subject["name"] for kind in ("ClusterRoleBinding", "RoleBinding")
                         for one in chart.of_kind(objects, kind) for subject in one["subjects"]}
                for component in set(chart.daemon_sets(objects)) & {"node", "plugin"}:
                    pod = chart.pod_of(objects, component)["spec"]
                    self.assertEqual([one["securityContext"]["runAsUser"] for one in pod["containers"]], [0])
                    # No token, no Secret, and an account that no role is bound to.
                    self.assertEqual([one for one in pod["volumes"] if not {"hostPath", "emptyDir"} & set(one)], [])
                    self.assertNotEqual(pod["serviceAccountName"], agent["serviceAccountName"])
                    self.assertNotIn(pod["serviceAccountName"], bound)
                for volume in agent["volumes"]:
                    for kind in ("secret", "projected"):
                        if kind in volume:
                            self.assertEqual(volume[kind]["defaultMode"], 0o440, volume["name"])

    def test_each_container_has_a_pod_and_hostd_alone_the_hosts_namespaces(self) -> None:
        """In the host's PID namespace root reads /proc/PID/root and /proc/PID/environ of other pods, without a capability."""
        manifests = [one for one in yaml.safe_load_all((chart.CHART.parent / "static/ferry.yaml").read_text()) if one]
        for name, objects in (*((file.name, chart.render(chart.sample(file))) for file in chart.SAMPLES),
                              *((switch, chart.render(values)) for switch, values in SWITCHES.items()),
                              ("hostd.enabled", chart.render({"hostd": {"enabled": False}})),
                              ("the static manifest", manifests)):
            with self.subTest(values=name):
                containers = chart.containers_of(objects)
                self.assertLessEqual({"agent", "plugin"}, set(containers))
                self.assertEqual(set(chart.daemon_sets(objects)), set(map(chart.component_of, containers)))
                for container in containers:
                    pod = chart.pod_of(objects, chart.component_of(container))["spec"]
                    self.assertEqual([one["name"] for one in pod["containers"]], [container])
                    self.assertNotIn("initContainers", pod)
                    for key, of_hostd in (("hostPID", True), ("hostNetwork", True), ("hostIPC", False), ("shareProcessNamespace", False)):
                        self.assertIs(pod.get(key, False), of_hostd and container == "hostd", (container, key))

    def test_the_plugin_sees_no_process_and_no_device_of_the_host(self) -> None:
        """Neither by a mount: it has its own folders of /run/ferry, the kubelet's, what it reads of sysfs, and vfio's nodes."""
        always = {"/run/ferry", "/run/ferry/plugin", "/run/ferry/hostd/empty", "/dev/vfio", "/sys/bus", "/sys/class", "/sys/devices",
                  "/sys/kernel/iommu_groups", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources"}
        cdi = {"/var/run/cdi"}
        for switch, values in {"": {}, "hostd.enabled": {"hostd": {"enabled": False}}, **SWITCHES}.items():
            with self.subTest(switch=switch):
                there = {one["hostPath"]["path"] for one in chart.volumes_of(chart.render(values), "plugin").values()}
                if switch == "plugin.pluginWatcher":
                    there = {path.replace("plugins_registry", "device-plugins") for path in there}
                self.assertEqual(there, always | (cdi if switch.startswith("kata.") else set()))

    def test_each_daemon_set_selects_only_its_own_pods(self) -> None:
        # An upgrade cannot change this: earlier charts had further containers in this DaemonSet's pods.
        of_before = {"app.kubernetes.io/name": "ferry", "app.kubernetes.io/instance": "ferry"}
        sets = chart.daemon_sets(chart.render({"podLabels": {"team": "gpus"}, "dra": {"enabled": True}}))
        self.assertEqual(sets["node"]["metadata"]["name"], "ferry")
        self.assertEqual(sets["node"]["spec"]["selector"]["matchLabels"], of_before)
        for component, one in sets.items():
            selected = one["spec"]["selector"]["matchLabels"].items()
            for other, pod in ((name, other["spec"]["template"]) for name, other in sets.items()):
                self.assertEqual(selected <= pod["metadata"]["labels"].items(), component == other, (component, other))

    def test_ferry_dra_shares_no_user_and_no_namespace(self) -> None:
        objects = chart.render({"dra": {"enabled": True}})
        agent, dra, node = (chart.pod_of(objects, component)["spec"] for component in ("agent", "dra", "node"))
        context = dra["securityContext"]
        self.assertIs(context["runAsNonRoot"], True)
        user = context["runAsUser"]
        self.assertEqual((context["runAsGroup"], context["fsGroup"]), (user, user))
        self.assertNotIn(user, (0, agent["securityContext"]["runAsUser"]))
        self.assertEqual(len({agent["serviceAccountName"], dra["serviceAccountName"], node["serviceAccountName"]}), 3)
        (token,) = [one["projected"] for one in dra["volumes"] if "projected" in one]
        self.assertEqual(token["defaultMode"], 0o440)
        words = chart.containers_of(objects)["hostd"]["args"]
        self.assertLessEqual({f"--dra-user={user}", f"--dra-group={user}"}, set(words))

    def test_hostd_gives_ferry_dra_each_folder_that_it_writes(self) -> None:
        for file in ("dra-values.yaml", "k0s-values.yaml"):
            values = {**chart.sample(chart.CHART / "ci" / file), "dra": {"enabled": True}}
            with self.subTest(values=file):
                objects = chart.render(values)
                containers = chart.containers_of(objects)
                hostd = containers["hostd"]
                given = {word.split("=")[1] for word in hostd["args"] if word.startswith("--dra-folder=")}
                written = {one["mountPath"].removeprefix("/host") for one in containers["dra"]["volumeMounts"]
                           if not one.get("readOnly")}
                # hostd makes the folder of the checkpoint itself.
                self.assertEqual(given, written - {"/run/ferry/dra"})
                mounted = {one["mountPath"] for one in hostd["volumeMounts"] if not one.get("readOnly")}
                self.assertLessEqual({f"/host{folder}" for folder in given}, mounted)
                group = chart.pod_of(objects, "dra")["spec"]["securityContext"]["runAsGroup"]
                self.assertIn(group, chart.pod_of(objects)["spec"]["securityContext"]["supplementalGroups"])
                kubelet = chart.paths(values)["kubelet"]
                self.assertIn(f"--kubelet-dir={kubelet}", containers["dra"]["args"])
                self.assertIn(f"{kubelet}/plugins_registry", given)
                # A writer of these, or of a folder above one, could have root run a program or read a file.
                for folder in (f"{kubelet}/plugins/gpu-ferry.io.hostd", "/run/cdi"):
                    self.assertIn(f"/host{folder}", mounted)
                    self.assertFalse([one for one in written if f"{folder}/".startswith(one.replace("/var/run/", "/run/") + "/")], folder)
                self.assertIn(f"--claim-metadata={kubelet}/plugins/gpu-ferry.io.hostd", hostd["args"])
                # The classes in the short form, and the names that the plugin gives.
                more = values.get("dra", {}).get("deviceClasses", {}).get("more", [])
                classes = [f"--class={one['extendedResourceName']}={one.get('model', one.get('vgpuType'))}"
                           for one in more if "model" in one or "vgpuType" in one]
                self.assertEqual([word for word in hostd["args"] if word.startswith("--class=")], classes)
                names = [word for word in containers["plugin"]["args"] if word.startswith(("--alias=", "--name-", "--vgpu-name-"))]
                self.assertEqual([word for word in hostd["args"] if word in names], names if classes else [])

    def test_hostd_gives_the_agent_each_folder_that_it_writes(self) -> None:
        for file in chart.SAMPLES:
            with self.subTest(values=file.name):
                containers = chart.containers_of(chart.render(chart.sample(file)))
                if "hostd" not in containers:
                    continue
                def written(name: str) -> set[str]:
                    return {one["mountPath"].removeprefix("/host") for one in containers[name]["volumeMounts"]
                            if not one.get("readOnly")}
                words = containers["hostd"]["args"]
                given = {word.split("=")[1] for word in words if word.startswith("--agent-tree=")}
                self.assertEqual(given | {"/var/lib/ferry"}, written("agent"))
                self.assertLessEqual(given, written("hostd"), "it can only give what it may write")
                objects = chart.render(chart.sample(file))
                group = chart.pod_of(objects, "agent")["spec"]["securityContext"]["runAsGroup"]
                self.assertIn(f"--agent-group={group}", words)
                self.assertIn(group, chart.pod_of(objects)["spec"]["securityContext"]["supplementalGroups"])
                if not containers["hostd"]["securityContext"]["privileged"]:
                    self.assertNotIn("CHOWN", containers["hostd"]["securityContext"]["capabilities"]["add"])

    def test_only_hostd_beside_the_operator_has_a_folder_of_the_operator(self) -> None:
        """The operator's pods run scripts of that folder as root, so even its making is nothing for the agent's pod."""
        for file in chart.SAMPLES:
            for enabled in (True, False):
                with self.subTest(values=file.name, enabled=enabled):
                    values = chart.sample(file)
                    values["gpuOperator"] = {**(values.get("gpuOperator") or {}), "enabled": enabled}
                    objects = chart.render(values)
                    there = {component: [one["hostPath"]["path"] for one in chart.pod_of(objects, component)["spec"]["volumes"]
                                         if "nvidia" in one.get("hostPath", {}).get("path", "")]
                             for component in chart.daemon_sets(objects)}
                    containers = chart.containers_of(objects)
                    has = enabled and "hostd" in containers
                    self.assertEqual({name: paths for name, paths in there.items() if paths},
                                     {"node": ["/run/nvidia/validations"]} if has else {})
                    self.assertEqual([name for name, one in containers.items() for mount in one["volumeMounts"]
                                      if mount["mountPath"].startswith("/host/run/nvidia")], ["hostd"] if has else [])
                    self.assertEqual("--validations" in (containers["hostd"]["args"] if "hostd" in containers else []), has)

    def test_the_table_has_the_folders_that_the_agent_writes(self) -> None:
        text = (chart.REPOSITORY / "SECURITY.md").read_text().split("### Folders that the agent writes")[1].split("\n## ")[0]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")]
        listed = {row[0].strip("`"): row[1] for row in rows}
        for values, switch in (({}, ""), ({"kata": {"enabled": True, "install": {"enabled": True}}}, "`kata.install.enabled`")):
            agent = chart.containers_of(chart.render(values))["agent"]
            written = {one["mountPath"].removeprefix("/host") for one in agent["volumeMounts"] if not one.get("readOnly")}
            self.assertEqual(written, {folder for folder, of in listed.items() if of in ("always", switch)})

    def test_a_network_policy_for_the_agent(self) -> None:
        self.assertEqual(chart.of_kind(chart.render(), "NetworkPolicy"), [])
        for metrics in (False, True):
            objects = chart.render({"networkPolicy": {"enabled": True, "egressPorts": [6443]},
                                    "agent": {"metrics": {"enabled": metrics}}})
            policy = next(one for one in chart.of_kind(objects, "NetworkPolicy") if one["metadata"]["name"] == "ferry-agent")
            self.assertEqual([port["port"] for rule in policy["spec"].get("ingress", []) for port in rule["ports"]],
                             [9417] if metrics else [])
            self.assertEqual({(port["port"], port["protocol"]) for rule in policy["spec"]["egress"] for port in rule["ports"]},
                             {(53, "UDP"), (53, "TCP"), (6443, "TCP")})

    def test_a_network_policy_selects_each_pod_with_a_network_of_its_own(self) -> None:
        objects = chart.render({"networkPolicy": {"enabled": True}, "dra": {"enabled": True}})
        policies = {one["metadata"]["name"]: one["spec"] for one in chart.of_kind(objects, "NetworkPolicy")}
        self.assertEqual(set(policies), {"ferry-agent", "ferry-plugin", "ferry-dra"})
        for name, spec in policies.items():
            self.assertEqual(spec["policyTypes"], ["Ingress", "Egress"])
            for component in ("agent", "dra", "node", "plugin"):
                labels = chart.pod_of(objects, component)["metadata"]["labels"].items()
                self.assertEqual(spec["podSelector"]["matchLabels"].items() <= labels, name == f"ferry-{component}")
        self.assertEqual(set(policies["ferry-plugin"]), {"podSelector", "policyTypes"}, "nothing goes in or out")

    def test_a_network_policy_denies_traffic_to_ferry_dra(self) -> None:
        objects = chart.render({"networkPolicy": {"enabled": True, "egressPorts": [6443]}, "dra": {"enabled": True}})
        policies = {one["metadata"]["name"]: one["spec"] for one in chart.of_kind(objects, "NetworkPolicy")}
        spec = policies["ferry-dra"]
        self.assertNotIn("ingress", spec)
        self.assertEqual(spec["egress"], policies["ferry-agent"]["egress"])

    def test_the_api_rights_of_ferry_dra(self) -> None:
        def granted(values: Any) -> set[tuple[str, str, str]]:
            objects = chart.render(values)
            bound = {one["roleRef"]["name"] for one in chart.of_kind(objects, "ClusterRoleBinding")
                     if [subject["name"] for subject in one["subjects"]] == ["ferry-dra"]}
            return {(group, resource, verb) for one in chart.of_kind(objects, "ClusterRole") if one["metadata"]["name"] in bound
                    for rule in one["rules"] for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}
        self.assertEqual(granted({}), set())
        self.assertEqual(granted({"dra": {"enabled": True}, "rbac": {"create": False}}), set())
        self.assertEqual(granted({"dra": {"enabled": True}}), {
            *(("resource.k8s.io", "resourceslices", verb) for verb in ("list", "watch", "create", "update", "delete")),
            *(("resource.k8s.io", "resourceclaims", verb) for verb in ("get", "list", "watch")),
            ("resource.k8s.io", "deviceclasses", "get"),
            ("", "nodes", "get"), *(("", "events", verb) for verb in ("create", "patch"))})
        # The agent and the node's pod get no more by it.
        more = [one for kind in ("Role", "RoleBinding") for one in chart.of_kind(chart.render({"dra": {"enabled": True}}), kind)]
        self.assertEqual(more, [one for kind in ("Role", "RoleBinding") for one in chart.of_kind(chart.render({}), kind)])

    def test_the_api_rights_of_the_agent(self) -> None:
        objects = chart.render({"gpuOperator": {"enabled": True, "namespace": "nvidia"}})
        rules = {(one["kind"], one["metadata"].get("namespace", ""), *rule["apiGroups"], *rule["resources"]):
                 rule["verbs"] for kind in ("ClusterRole", "Role") for one in chart.of_kind(objects, kind)
                 for rule in one["rules"]}
        self.assertEqual(rules, {
            ("ClusterRole", "", "", "nodes"): ["get", "list", "watch", "patch"],
            ("Role", "gpus", "", "configmaps"): ["list", "watch"],
            ("Role", "default", "", "events"): ["create", "patch"],
            ("Role", "gpus", "coordination.k8s.io", "leases"): ["get", "list", "watch", "create", "patch"],
            ("ClusterRole", "", "", "pods"): ["list", "watch"],
            ("Role", "nvidia", "apps", "daemonsets"): ["list", "watch"],
        })
        roles = {(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace"))
                 for kind in ("ClusterRole", "Role") for one in chart.of_kind(objects, kind)}
        bindings = [one for kind in ("ClusterRoleBinding", "RoleBinding") for one in chart.of_kind(objects, kind)]
        self.assertEqual(roles, {(one["roleRef"]["kind"], one["roleRef"]["name"], one["metadata"].get("namespace"))
                                 for one in bindings})
        for one in bindings:
            self.assertEqual(one["subjects"], [{"kind": "ServiceAccount", "name": "ferry", "namespace": "gpus"}])

    def test_the_api_rights_of_an_agent_that_drains(self) -> None:
        def rules(values: Any) -> set[tuple[str, str, str]]:
            objects = chart.render(values)
            bound = {one["roleRef"]["name"] for one in chart.of_kind(objects, "ClusterRoleBinding")}
            return {(resource, verb, one["metadata"]["name"]) for one in chart.of_kind(objects, "ClusterRole")
                    if one["metadata"]["name"] in bound
                    for rule in one["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
        self.assertEqual(rules({"agent": {"drain": {"enabled": True}}}) - rules({}),
                         {("pods/eviction", "create", "ferry-evictions"), ("pods", "list", "ferry-pods"),
                          ("pods", "watch", "ferry-pods"), ("daemonsets", "get", "ferry-evictions")})
        self.assertNotIn("--drain", chart.containers_of(chart.render())["agent"]["args"])
        arguments = chart.containers_of(chart.render({"agent": {"drain": {"enabled": True, "timeout": "90s"}}}))["agent"]["args"]
        self.assertLessEqual({"--drain", "--drain-timeout=90s"}, set(arguments))

    def test_the_api_rights_of_an_agent_with_node_features(self) -> None:
        def rules(values: Any) -> set[tuple[str, str, str, str]]:
            objects = chart.render(values)
            bound = {one["roleRef"]["name"] for one in chart.of_kind(objects, "RoleBinding")}
            return {(one["metadata"]["namespace"], resource, verb, name) for one in chart.of_kind(objects, "Role")
                    if one["metadata"]["name"] in bound for rule in one["rules"] for resource in rule["resources"]
                    for verb in rule["verbs"] for name in rule.get("resourceNames", [""])}
        declared = {"agent": {"featureLabels": "node", "notConfidential": True}}
        self.assertEqual(rules(declared), rules({}))
        self.assertIn("--not-confidential", chart.containers_of(chart.render(declared))["agent"]["args"])
        nfd = {"agent": {"featureLabels": "nfd"}}
        self.assertEqual(rules(nfd) - rules({}), {
            *(("gpus", "nodefeatures", verb, "") for verb in ("list", "watch", "create", "patch")),
            *(("gpus", "configmaps", verb, "ferry-features") for verb in ("list", "watch"))})
        objects = chart.render(nfd)
        arguments = chart.containers_of(objects)["agent"]["args"]
        self.assertLessEqual({"--feature-labels=nfd", "--feature-owner=ferry-features"}, set(arguments))
        self.assertIn("ferry-features", [one["metadata"]["name"] for one in chart.of_kind(objects, "ConfigMap")])

    def test_the_test_clusters_agent_has_the_same_rights(self) -> None:
        def granted(objects: list[chart.Object]) -> Any:
            return {(one["kind"], one["metadata"]["name"]): (one["metadata"].get("namespace"), one.get("rules"),
                                                             one.get("roleRef"), one.get("subjects"))
                    for one in objects if "rbac" in one["apiVersion"]}
        file = chart.REPOSITORY / "tests/cluster/agent-rights.yaml"
        there = [one for one in yaml.safe_load_all(file.read_text()) if one]
        self.assertEqual(granted(there), granted(chart.render({"gpuOperator": {"enabled": True}}, space="ferry")))

    def test_the_uninstall_hook_has_only_the_rights_it_needs(self) -> None:
        for file in chart.SAMPLES:
            with self.subTest(values=file.name):
                values = chart.sample(file)
                made = chart.hooks(values)
                if not all(values.get(section, {}).get(key, True) for section, key in (("rbac", "create"),
                                                                                      ("uninstall", "endsAgentsFirst"))):
                    self.assertEqual(made, {})
                    continue
                self.assertEqual(set(made), {"ServiceAccount", "Role", "RoleBinding", "Job"})
                for one in made.values():
                    self.assertEqual(one["metadata"]["annotations"]["helm.sh/hook"], "pre-delete")
                    self.assertEqual(one["metadata"]["namespace"], values.get("namespaceOverride", "gpus"))
                daemon_set = chart.daemon_sets(chart.render(values))["agent"]
                self.assertEqual(made["Role"]["rules"], [
                    {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["list", "watch", "delete"],
                     "resourceNames": [daemon_set["metadata"]["name"]]}])
                account = made["ServiceAccount"]["metadata"]["name"]
                self.assertEqual([one["name"] for one in made["RoleBinding"]["subjects"]], [account])
                self.assertEqual(made["RoleBinding"]["roleRef"]["name"], made["Role"]["metadata"]["name"])
                template = made["Job"]["spec"]["template"]
                pod = template["spec"]
                self.assertEqual(pod["serviceAccountName"], account)
                self.assertNotIn("volumes", pod)
                self.assertNotIn("hostPID", pod)
                self.assertNotIn("hostNetwork", pod)
                self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
                (container,) = pod["containers"]
                agent = chart.containers_of(chart.render(values))["agent"]
                for key in ("privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities", "seccompProfile"):
                    self.assertEqual(container["securityContext"][key], agent["securityContext"][key], key)
                self.assertEqual(container["image"], agent["image"])
                # A DaemonSet would take it for one of its own, and end it.
                for one in chart.daemon_sets(chart.render(values)).values():
                    selected = one["spec"]["selector"]["matchLabels"]
                    self.assertFalse(selected.items() <= template["metadata"]["labels"].items())
        self.assertEqual(chart.hooks({"uninstall": {"endsAgentsFirst": False}}), {})

    def test_the_api_rights_of_the_charts_test(self) -> None:
        for file in chart.SAMPLES:
            with self.subTest(values=file.name):
                values = chart.sample(file)
                made = chart.hooks(values, "test")
                if (values.get("rbac") or {}).get("create") is False:
                    self.assertEqual(made, {})
                    continue
                self.assertEqual(set(made), {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"})
                slices = [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]}]
                self.assertEqual(made["ClusterRole"]["rules"],
                                 [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
                                  {"apiGroups": ["kubevirt.io"], "resources": ["kubevirts"], "verbs": ["list"]},
                                  *(slices if (values.get("dra") or {}).get("enabled") else [])])
                account = made["ServiceAccount"]["metadata"]["name"]
                self.assertEqual([one["name"] for one in made["ClusterRoleBinding"]["subjects"]], [account])
                for one in made.values():  # nothing stays, and no right either
                    self.assertIn("hook-succeeded", one["metadata"]["annotations"]["helm.sh/hook-delete-policy"])
                template = made["Job"]["spec"]["template"]
                pod = template["spec"]
                self.assertEqual(pod["serviceAccountName"], account)
                for key in ("volumes", "hostPID", "hostNetwork"):
                    self.assertNotIn(key, pod)
                self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
                (container,) = pod["containers"]
                agent = chart.containers_of(chart.render(values))["agent"]
                self.assertEqual(container["image"], agent["image"])
                for key in ("privileged", "allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities", "seccompProfile"):
                    self.assertEqual(container["securityContext"][key], agent["securityContext"][key], key)
                for one in chart.daemon_sets(chart.render(values)).values():
                    selected = one["spec"]["selector"]["matchLabels"]
                    self.assertFalse(selected.items() <= template["metadata"]["labels"].items())
                # Only a node that reports a state runs it.
                (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
                state = re.findall('kStateLabel = "([^"]+)"', (chart.REPOSITORY / "api/labels.h").read_text())[0]
                self.assertIn({"key": state, "operator": "Exists"}, term["matchExpressions"])
