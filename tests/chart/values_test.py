# SPDX-License-Identifier: Apache-2.0
"""The effect of values on the rendered objects."""

import copy
import json
import os
import re
import subprocess
import tempfile
import unittest
from typing import Any

import yaml

import chart


class ValuesTest(unittest.TestCase):
    """The effect of each value."""

    def test_each_option_exists_in_its_program(self) -> None:
        programs = os.environ["FERRY_BIN"]
        for file in chart.SAMPLES:
            containers = chart.containers_of(chart.render(chart.sample(file)))
            if job := chart.hooks(chart.sample(file)).get("Job"):
                containers["uninstall"] = job["spec"]["template"]["spec"]["containers"][0]
                test = chart.hooks(chart.sample(file), "test")["Job"]
                containers["test"] = test["spec"]["template"]["spec"]["containers"][0]
            for name, container in containers.items():
                command = [programs + "/" + container["command"][0].removeprefix("/usr/bin/")]
                # Parsed, and not run: what is asked for first is help.
                verb = [word for word in container["args"] if not word.startswith("-")]
                printed = subprocess.run([*command, *verb, "--help"], capture_output=True, text=True, check=True).stdout
                printed += subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
                for word in container["args"]:
                    if word.startswith("--"):
                        with self.subTest(values=file.name, container=name, option=word):
                            option = re.escape(word.split("=")[0])
                            self.assertTrue(re.search(rf"(?m)^\s+(-\w,\s*)?{option}\b", printed),
                                            f"{command[0]} has no such option")

    def test_the_agent_may_read_the_config_maps_of_its_options(self) -> None:
        objects = chart.render({"config": {"configMaps": ["more", "others"]}})
        config_maps = [word.split("=")[1] for word in chart.containers_of(objects)["agent"]["args"] if "config-map" in word]
        (role,) = [one for one in chart.of_kind(objects, "Role") if one["metadata"]["name"] == "ferry-config"]
        self.assertEqual(role["rules"][0]["resourceNames"], config_maps)
        self.assertEqual(config_maps, ["ferry-policies", "ferry-vgpu-profiles", "more", "others"])

    def test_the_values_about_the_operator(self) -> None:
        alone = chart.render()
        self.assertIn("--without-operator", chart.containers_of(alone)["agent"]["args"])
        self.assertEqual({one["metadata"]["namespace"] for one in chart.of_kind(alone, "Role")}, {"gpus", "default"})
        beside = chart.render({"gpuOperator": {"enabled": True, "namespace": "nvidia"}})
        self.assertIn("--operator-namespace=nvidia", chart.containers_of(beside)["agent"]["args"])
        self.assertEqual({one["metadata"]["namespace"] for one in chart.of_kind(beside, "Role")},
                         {"gpus", "default", "nvidia"})

    def test_the_nodes_of_the_pods(self) -> None:
        def terms(values: Any) -> Any:
            found = [chart.pod_of(chart.render(values), component)["spec"]["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] for component in ("agent", "node", "plugin")]
            self.assertEqual(found, [found[0]] * 3)
            return found[0]
        out = {"key": "gpu-ferry.io/deploy", "operator": "NotIn", "values": ["false"]}
        self.assertEqual(terms({"gpuNodeLabels": []}), [{"matchExpressions": [out]}])
        self.assertEqual(terms({"gpuNodeLabels": ["a", "b"]}), [
            {"matchExpressions": [{"key": key, "operator": "In", "values": ["true"]}, out]} for key in "ab"])

    def test_an_affinity_is_added(self) -> None:
        """Terms are alternatives, and the expressions of a term all count."""
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        zones = [{"key": "zone", "operator": "In", "values": [zone]} for zone in ("eu", "us")]
        others = {"podAntiAffinity": {key: [{"topologyKey": "zone"}]}}
        preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": zones}}]}
        given = {"nodeAffinity": {key: {"nodeSelectorTerms": [
            {"matchExpressions": [zones[0]]}, {"matchExpressions": [zones[1]], "matchFields": zones}]}, **preferred}, **others}
        for component in ("agent", "node", "plugin"):
            found = chart.pod_of(chart.render({"gpuNodeLabels": ["a", "b"], "affinity": given}), component)["spec"]["affinity"]
            terms = found["nodeAffinity"].pop(key)["nodeSelectorTerms"]
            self.assertEqual(found, {"nodeAffinity": preferred, **others})
            self.assertEqual([[one["key"] for one in term["matchExpressions"]] for term in terms],
                             [[label, "gpu-ferry.io/deploy", "zone"] for label in "aabb"])
            self.assertEqual([term["matchExpressions"][2:] for term in terms], [[zones[0]], [zones[1]]] * 2)
            self.assertEqual([term.get("matchFields") for term in terms], [None, zones] * 2)

    def test_custom_names_reach_all_objects(self) -> None:
        values = chart.sample(chart.CHART / "ci/names-values.yaml")
        for one in chart.render_all(values):
            with self.subTest(kind=one["kind"], name=one["metadata"]["name"]):
                metadata = one["metadata"]
                self.assertEqual(metadata["labels"]["team"], "gpus")
                self.assertEqual(metadata["annotations"]["example.com/owner"], "gpus@example.com")
                if metadata["labels"]["app.kubernetes.io/name"] == "gpus":
                    self.assertTrue(metadata["labels"]["helm.sh/chart"].startswith("ferry-"), "by which `gather` knows pods")
                self.assertIn(metadata.get("namespace"), (None, "default", "gpu-system"))
                for subject in one.get("subjects", []):
                    self.assertEqual(subject["namespace"], "gpu-system")
                if one["kind"] == "ServiceAccount" and not chart.is_hook(one):
                    self.assertEqual(metadata["annotations"]["example.com/role"], "ferry")
                template = one.get("spec", {}).get("template", {})
                for container in template.get("spec", {}).get("containers", []):
                    self.assertEqual(container["image"], "registry.example:5000/gpus/ferry:1")
                if template:
                    self.assertEqual(template["metadata"]["labels"]["team"], "gpus")
        self.assertIn("system:serviceaccount:gpu-system:ferry-agent",
                      str(chart.of_kind(chart.render(values), "ValidatingAdmissionPolicy")))
        for component, one in chart.daemon_sets(chart.render(values)).items():
            spec, pod = one["spec"], chart.pod_of(chart.render(values), component)
            self.assertEqual((spec["updateStrategy"], spec["revisionHistoryLimit"]), ({"type": "OnDelete"}, 2))
            self.assertEqual(pod["metadata"]["labels"]["example.com/billing"], "gpus")
            self.assertEqual(pod["metadata"]["annotations"]["example.com/scrape"], "false")
            self.assertLessEqual(spec["selector"]["matchLabels"].items(), pod["metadata"]["labels"].items())
        containers = chart.containers_of(chart.render(values))
        for name, variable, mount in (("agent", "HTTPS_PROXY", "/etc/authorities"), ("hostd", "TZ", "/notes"),
                                      ("plugin", "TZ", "/notes")):
            self.assertIn(variable, [one["name"] for one in containers[name]["env"]])
            (volume,) = [one["name"] for one in containers[name]["volumeMounts"] if one["mountPath"] == mount]
            self.assertIn(volume, chart.volumes_of(chart.render(values), name))

    def test_a_pods_own_label_overrides_a_common_one(self) -> None:
        values = {"commonLabels": {"team": "a"}, "podLabels": {"team": "b"}}
        for one in chart.daemon_sets(chart.render(values)).values():
            self.assertEqual(one["metadata"]["labels"]["team"], "a")
            self.assertEqual(one["spec"]["template"]["metadata"]["labels"]["team"], "b")

    def test_the_image(self) -> None:
        for image, name in (({"repository": "a/b"}, "a/b:0.1.0"), ({"registry": "r:5000", "repository": ""}, "r:5000/ferry:0.1.0"),
                            ({"registry": "r", "repository": "a/b", "tag": "x"}, "r/a/b:x"),
                            ({"repository": "a", "tag": "x", "digest": "sha256:" + "0" * 64}, "a@sha256:" + "0" * 64)):
            self.assertEqual(chart.containers_of(chart.render({"image": image}))["agent"]["image"], name)

    def test_defaults_can_be_removed(self) -> None:
        for helm in chart.helms().values():
            for component in ("agent", "node", "plugin"):
                def pod(values: Any, helm: Any = helm, component: str = component) -> Any:
                    return chart.pod_of(chart.render(values, helm=helm), component)["spec"]
                self.assertEqual(pod({})["securityContext"]["seLinuxOptions"], {"type": "spc_t"})
                self.assertEqual(pod({"seLinuxOptions": {}}), pod({}))  # as values.yaml says of maps
                for nothing in (None, {"type": None}):
                    self.assertNotIn("seLinuxOptions", pod({"seLinuxOptions": nothing}).get("securityContext", {}))
                microk8s = pod(chart.sample(chart.CHART / "ci/microk8s-values.yaml"))
                self.assertNotIn("seLinuxOptions", microk8s.get("securityContext", {}))
                self.assertEqual(pod({})["priorityClassName"], "system-node-critical")
                self.assertNotIn("priorityClassName", pod({"priorityClassName": ""}))
            for given, there in (({"a": "b"}, {"a": "b", "grafana_dashboard": "1"}),
                                 ({"a": "b", "grafana_dashboard": None}, {"a": "b"}),
                                 ({"grafana_dashboard": None}, {}), (None, {})):
                objects = chart.render({"agent": {"metrics": {"enabled": True}},
                                        "grafanaDashboard": {"enabled": True, "labels": given}}, helm=helm)
                (labels,) = [one["metadata"]["labels"] for one in chart.of_kind(objects, "ConfigMap")
                             if one["metadata"]["name"] == "ferry-dashboard"]
                self.assertEqual({key: value for key, value in labels.items() if "/" not in key}, there)

    def test_apparmor_is_set_by_field_or_annotation(self) -> None:
        for version, field in (("1.29.9", False), ("1.30.0", True), ("1.31.2-gke.1", True)):
            pod = chart.pod_of(chart.render(kube_version=version))
            context = next(one for one in pod["spec"]["containers"] if one["name"] == "hostd")["securityContext"]
            self.assertEqual(context.get("appArmorProfile"), {"type": "Unconfined"} if field else None)
            annotations = {name: one["spec"]["template"]["metadata"].get("annotations", {}) for name, one in
                           chart.daemon_sets(chart.render(kube_version=version)).items()}
            unconfined = {"container.apparmor.security.beta.kubernetes.io/hostd": "unconfined"}
            self.assertEqual(annotations, {"agent": {}, "plugin": {}, "node": {} if field else unconfined})

    def test_the_admission_policy(self) -> None:
        def there(version: str, enabled: str) -> bool:
            objects = chart.render({"admissionPolicy": {"enabled": enabled}}, kube_version=version)
            return bool(chart.of_kind(objects, "ValidatingAdmissionPolicy"))
        self.assertEqual([there("1.29.9", word) for word in ("auto", "always", "never")], [False, True, False])
        self.assertEqual([there("1.30.0", word) for word in ("auto", "always", "never")], [True, True, False])

    def test_the_admission_policy_permits_and_denies(self) -> None:
        if not os.environ["FERRY_K8S_CHECKS"]:
            self.skipTest("k8s-admit cannot be had, and no admission policy is evaluated")
        # A value that permits more, what is denied without it, and what is said instead.
        for values, denied, file in (({}, "", ""),
                                     ({"drain": {"enabled": True}}, "it cordons", "admission-drain.yaml"),
                                     ({"featureLabels": "node"}, "it says what its GPUs are", "admission-labels.yaml"),
                                     ({"featureLabels": "nfd"}, "", "admission-nfd.yaml"),
                                     ({"dra": True}, "", "admission-dra.yaml")):
            given = {"dra": {"enabled": True}} if "dra" in values else {"agent": values}
            policies = chart.of_kind(chart.render(given), "ValidatingAdmissionPolicy")
            requests = chart.sample(chart.REPOSITORY / "tests/chart/admission.yaml")
            if file:
                more = chart.sample(chart.REPOSITORY / "tests/chart" / file)
                requests = [*(one for one in requests if one["name"] != denied), *more]
            with self.subTest(values=values):
                self.expect_decisions(policies, requests)

    def expect_decisions(self, policies: list[Any], requests: list[Any]) -> None:
        cases = tempfile.NamedTemporaryFile("w", suffix=".json")  # without the table's references
        self.addCleanup(cases.close)
        json.dump(requests, cases)
        cases.flush()

        def decisions(of: list[Any]) -> subprocess.CompletedProcess[str]:
            return subprocess.run([os.environ["FERRY_K8S_CHECKS"] + "/k8s-admit", cases.name],
                                  input=yaml.safe_dump_all(of), capture_output=True, text=True, check=False)
        done = decisions(policies)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # Each validation is one that some request fails by.
        for number, policy in enumerate(policies):
            for rule in range(len(policy["spec"]["validations"])):
                fewer = copy.deepcopy(policies)
                del fewer[number]["spec"]["validations"][rule]
                with self.subTest(policy=policy["metadata"]["name"], without=rule):
                    self.assertEqual(decisions(fewer).returncode, 1)

    def test_the_admission_policy_knows_the_labels_that_the_agent_sets(self) -> None:
        words = (chart.REPOSITORY / "api/labels.h").read_text()
        operands = (chart.REPOSITORY / "agent/operator_compat/operands.cpp").read_text()
        constants = dict(re.findall(r"k(\w+) = \"([^\"]+)\"", words))
        set_by_agent = {constants["StateLabel"], constants["VgpuStateLabel"]}
        paused = re.findall(r'Operand\{\.name = "([a-z-]+)"', operands)
        self.assertTrue(paused)
        policy = next(one for one in chart.of_kind(chart.render(), "ValidatingAdmissionPolicy")
                      if one["metadata"]["name"] == "ferry-own-node")
        variables = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
        self.assertEqual(set(re.findall("'([^']+)'", variables["ours"])), set_by_agent)
        self.assertEqual(re.findall("'([^']+)'", variables["operands"]), [constants["DeployPrefix"] + name for name in paused])
        header = (chart.REPOSITORY / "agent/operator_compat/operands.h").read_text()
        self.assertEqual([variables["mark"].strip("'")], re.findall('kPauseMark = "([^"]+)"', header))
        self.assertEqual(variables["kata"].strip("'"), constants["KataPrefix"])
        self.assertEqual(re.findall("'([^']+)'", variables["oursOfNotes"]),
                         [constants[name] for name in ("ErrorAnnotation", "DrainAnnotation", "CordonedAnnotation",
                                                       "FeaturesAnnotation", "KataErrorAnnotation")])
        features = re.compile(variables["features"].strip("'"))
        seen = {line.split("=")[0] for file in (chart.REPOSITORY / "tests/fixtures/labels").glob("*.txt")
                for line in file.read_text().splitlines() if "=" in line}
        self.assertGreater(len(seen), 20)
        # The policy permits this one label with two values alone.
        self.assertEqual([key for key in seen if not features.search(key)], ["nvidia.com/cc.ready.state"])
        self.assertIn(constants["CordonedAnnotation"], variables["markedNow"])

    def test_the_names_of_dra_are_those_of_the_program(self) -> None:
        driver = re.findall('kDraDriver = "([^"]+)"', (chart.REPOSITORY / "api/claim_files.h").read_text())[0]
        objects = chart.render({"dra": {"enabled": True}})
        classes = {one["metadata"]["name"]: one["spec"] for one in chart.of_kind(objects, "DeviceClass")}
        words = dict(re.findall(r'k(Whole|Vgpu|Type) = "([^"]+)"', (chart.REPOSITORY / "dra/slices/resource_slice.h").read_text()))
        self.assertEqual(classes, {f"{words[kind]}.{driver}": {"selectors": [{"cel": {
            "expression": f"device.driver == '{driver}' && device.attributes['{driver}'].{words['Type']} == '{words[kind]}'"}}]}
            for kind in ("Whole", "Vgpu")})
        self.assertIn(f"/host/var/lib/kubelet/plugins/{driver}",
                      [one["mountPath"] for one in chart.containers_of(objects)["dra"]["volumeMounts"]])
        policy = next(one for one in chart.of_kind(objects, "ValidatingAdmissionPolicy")
                      if one["metadata"]["name"] == "ferry-dra-own-slices")
        self.assertIn(f"variables.node + '/{driver.split('.')[0]}'", policy["spec"]["validations"][1]["expression"])
        self.assertIn(f"size(variables.node) > {253 - 1 - len(driver.split('.')[0])} ", policy["spec"]["validations"][1]["expression"])

    def test_an_older_manifest_names_its_resource(self) -> None:
        values = chart.sample(chart.CHART / "ci/dra-values.yaml")
        classes = {one["metadata"]["name"]: one["spec"] for one in chart.of_kind(chart.render(values), "DeviceClass")}
        self.assertEqual({name: spec.get("extendedResourceName") for name, spec in classes.items()}, {
            "whole.example.com": None, "l40s.example.com": "nvidia.com/AD102GL_L40S", "six-gib.example.com": None,
            "gh100-h100-sxm5-80gb.nvidia.com": "nvidia.com/GH100_H100_SXM5_80GB",
            "nvidia-l40s-6q.nvidia.com": "nvidia.com/NVIDIA_L40S-6Q", "a16.example.com": "example.com/gpu.a16"})
        self.assertEqual([len(spec["selectors"]) for spec in classes.values()].count(2), 5)
        of = "device.attributes['gpu-ferry.io']"

        def chosen(name: str) -> list[str]:
            return [one["cel"]["expression"] for one in classes[name]["selectors"]]
        whole, vgpu = (f"device.driver == 'gpu-ferry.io' && {of}.type == '{kind}'" for kind in ("whole", "vgpu"))
        self.assertEqual(chosen("gh100-h100-sxm5-80gb.nvidia.com"),
                         [whole, f"{of}.vendorID == '0x10de' && {of}.deviceID == '0x2330'"])
        self.assertEqual(chosen("nvidia-l40s-6q.nvidia.com"), [vgpu, f"{of}.vgpuType == 'L40S-6Q'"])

    def test_the_kubelets_default_folder_is_the_same_everywhere(self) -> None:
        def kubelets(file: str) -> dict[str, str]:
            volumes = chart.volumes_of(chart.render(chart.sample(chart.CHART / "ci" / file)), "plugin")
            return {name: volumes[name]["hostPath"]["path"] for name in ("plugins", "pod-resources")}
        self.assertEqual(kubelets("k0s-values.yaml"), {"plugins": "/var/lib/kubelet/device-plugins",
                                                       "pod-resources": "/var/lib/k0s/kubelet/pod-resources"})
        root = "/var/snap/microk8s/common/var/lib/kubelet"
        self.assertEqual(kubelets("microk8s-values.yaml"), {"plugins": f"{root}/plugins_registry",
                                                            "pod-resources": f"{root}/pod-resources"})

    def test_a_distribution_sets_the_paths_and_host_paths_count_more(self) -> None:
        known = chart.sample(chart.CHART / "files/distributions.yaml")
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        self.assertEqual(set(schema["properties"]["distribution"]["enum"]) - {""}, set(known) - {"usual"})
        self.assertEqual(set(known["usual"]), set(schema["properties"]["hostPaths"]["properties"]))
        own = {"kubelet": "/a/kubelet", "containerRuntime": "/a/run/c.sock", "containerRuntimeConfig": "/a/etc", "kata": "/a/kata",
               "kataArtifacts": "/a/artifacts", "units": ["/lib/systemd"], "modprobe": ["/run/modprobe.d"]}
        kata = {"kata": {"enabled": True, "install": {"enabled": True}}}
        for distribution in schema["properties"]["distribution"]["enum"]:
            for host_paths in ({}, own, {"modprobe": []}):
                values = {"distribution": distribution, "hostPaths": host_paths, **({} if distribution == "talos" else kata)}
                with self.subTest(distribution=distribution, hostPaths=host_paths):
                    objects = chart.render(values)
                    expected = chart.paths(values)
                    volumes = {name: one["hostPath"]["path"] for name, one in chart.volumes_of(objects, "hostd").items()}
                    self.assertEqual(volumes["pod-resources"], expected["kubelet"] + "/pod-resources")
                    self.assertEqual([path for name, path in volumes.items() if name.startswith("modprobe-")], expected["modprobe"])
                    if distribution == "talos":
                        continue
                    self.assertEqual([path for name, path in volumes.items() if name.startswith("units-")], expected["units"])
                    self.assertEqual([volumes[name] for name in ("container-runtime", "runtime-config", "kata", "kata-artifacts")],
                                     [os.path.dirname(expected["containerRuntime"]), expected["containerRuntimeConfig"],
                                      expected["kata"], expected["kataArtifacts"]])
                    words = chart.containers_of(objects)["hostd"]["args"]
                    self.assertIn("--cri-socket=" + expected["containerRuntime"], words)
                    self.assertIn("--agent-tree=" + expected["kataArtifacts"], words)

    def test_a_privileged_hostd_has_the_hosts_root_and_nodes_and_leaves_no_control_group(self) -> None:
        for values in ({}, {"hostTools": True}, {"systemd": False}):
            objects = chart.render({"distribution": "k0s", "hostd": {**values, "privileged": True}})
            hostd = chart.containers_of(objects)["hostd"]
            self.assertEqual(set(hostd["securityContext"]) - {"appArmorProfile"}, {"privileged", "readOnlyRootFilesystem", "runAsUser"})
            mounts = {one["mountPath"]: one for one in hostd["volumeMounts"]}
            self.assertIs(mounts["/host"]["readOnly"], False)
            self.assertEqual(mounts["/host"]["mountPropagation"], "HostToContainer")
            self.assertFalse(mounts["/dev"].get("readOnly", False))
            self.assertNotIn("--own-scope", hostd["args"])
            self.assertEqual("/host/run/systemd" in mounts, values.get("systemd", True))

    def test_runtime_classes_lack_the_label_for_deletion(self) -> None:
        self.assertEqual(chart.of_kind(chart.render(), "RuntimeClass"), [])
        file = chart.CHART / "ci/kata-values.yaml"
        classes = chart.of_kind(chart.render(chart.sample(file)), "RuntimeClass")
        self.assertEqual([(one["metadata"]["name"], one["handler"]) for one in classes],
                         [("kata-nvidia-gpu", "kata-nvidia-gpu"), ("kata-qemu-nvidia-gpu", "kata-nvidia-gpu")])
        for one in classes:
            self.assertNotIn("nvidia.com/kata-runtime-class", one["metadata"]["labels"])

    def test_runtime_classes_select_nodes_with_a_ready_handler(self) -> None:
        values = chart.sample(chart.CHART / "ci/kata-values.yaml")
        prefix = re.findall('kKataPrefix = "([^"]+)"', (chart.REPOSITORY / "api/labels.h").read_text())[0]

        def selectors() -> list[Any]:
            classes = chart.of_kind(chart.render(values), "RuntimeClass")
            return [one.get("scheduling", {}).get("nodeSelector") for one in classes]

        def asks() -> list[str]:
            hostd = chart.containers_of(chart.render(values))["hostd"]
            return [word for word in hostd["args"] if "cri-socket" in word] + [
                one["mountPath"] for one in hostd["volumeMounts"] if one["name"] == "container-runtime"]
        ready = {prefix + "kata-nvidia-gpu": "ready"}
        self.assertEqual(selectors(), [ready | {"example.com/gpu": "true"}, ready])
        self.assertEqual(asks(), ["--cri-socket=/run/containerd/containerd.sock", "/host/run/containerd"])
        values["hostPaths"] = {"containerRuntime": "/run/k3s/containerd/containerd.sock"}
        self.assertEqual(asks(), ["--cri-socket=/run/k3s/containerd/containerd.sock", "/host/run/k3s/containerd"])
        values["kata"]["readyNodesOnly"] = False
        self.assertEqual(selectors(), [{"example.com/gpu": "true"}, None])
        self.assertEqual(asks(), [])
        # A label's name has 63 characters at most. Without the label a longer handler counts.
        longest = 63 - len(prefix.split("/")[1])
        for length, only_ready in ((longest, True), (longest + 1, False)):
            values["kata"] = {"enabled": True, "readyNodesOnly": only_ready, "runtimeClasses": [{"name": "k" * length}]}
            self.assertEqual(len(selectors()), 1)

    def test_runtimes_are_installed_only_on_request(self) -> None:
        values = chart.sample(chart.CHART / "ci/kata-install-values.yaml")

        def kata_words(name: str) -> list[str]:
            return [word for word in chart.containers_of(chart.render(values))[name]["args"]
                    if re.match("--(kata|pull|cri)", word)]
        self.assertEqual(kata_words("agent"), ["--kata-classes=gpus/ferry-kata-classes", "--pull-secrets=/etc/ferry/pull"])
        self.assertEqual(kata_words("hostd"), ["--cri-socket=/run/k3s/containerd/containerd.sock", "--kata"])
        objects = chart.render(values)
        (role,) = [one for one in chart.of_kind(objects, "Role") if one["metadata"]["name"] == "ferry-config"]
        self.assertIn("ferry-kata-classes", role["rules"][0]["resourceNames"])
        self.assertNotIn("secrets", {resource for kind in ("Role", "ClusterRole") for one in chart.of_kind(objects, kind)
                                     for rule in one["rules"] for resource in rule["resources"]})
        volumes = [one["secret"] for one in chart.volumes_of(objects, "agent").values()
                   if one.get("secret", {}).get("secretName") in ("kata-pull", "other.pull")]
        self.assertEqual([one["optional"] for one in volumes], [True, True])
        values["kata"]["install"]["configMap"] = "mine"
        self.assertEqual(kata_words("agent")[0], "--kata-classes=gpus/mine")
        self.assertNotIn("ferry-kata-classes",
                         [one["metadata"]["name"] for one in chart.of_kind(chart.render(values), "ConfigMap")])
        values["kata"]["readyNodesOnly"] = False
        self.assertIn("--kata", kata_words("hostd"))
        values["kata"]["install"]["enabled"] = False
        self.assertEqual(kata_words("agent") + kata_words("hostd"), [])

    def test_the_schema_and_the_agent_accept_the_same_operands(self) -> None:
        source = (chart.REPOSITORY / "vfio/quiesce/release.cpp").read_text()
        def words_of(constant: str) -> list[str]:
            found = re.search(constant + r" = \{([^}]*)\}", source)
            self.assertIsNotNone(found)
            return re.findall(r'"([^"]+)"', found[1] if found else "")
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        items = schema["properties"]["defaults"]["properties"]["release"]["items"]
        pattern, refused = items["pattern"], [one["pattern"] for one in items["not"]["anyOf"]]

        def taken(name: str) -> bool:
            return bool(re.search(pattern, name)) and not any(re.search(no, name) for no in refused)
        for name in ("nvidia-dcgm", "nv-hostengine", "nvidia_drm", "none", "gpu@0.service", "a" * 247):
            self.assertTrue(taken(name), name)
        for begin in words_of("kBeginnings"):
            self.assertFalse(taken(begin + "-x.service"), begin)
        for kind in words_of("kOtherKinds"):
            self.assertFalse(taken("nvidia" + kind), kind)
        self.assertFalse(taken("a" * 248))

    def test_the_admission_policy_knows_the_leases_that_the_agent_writes(self) -> None:
        headers = "".join(file.read_text() for file in sorted((chart.REPOSITORY / "agent/rollout").glob("rollout*")))
        headers += (chart.REPOSITORY / "api/labels.h").read_text()
        constants = dict(re.findall(r"k(\w+) = \"?([^\";]+)\"?;", headers))
        policy = next(one for one in chart.of_kind(chart.render(), "ValidatingAdmissionPolicy")
                      if one["metadata"]["name"] == "ferry-own-changes")
        variables = {one["name"]: one["expression"] for one in policy["spec"]["variables"]}
        self.assertEqual([variables[name].strip("'") for name in ("leasePrefix", "passed", "failed", "most")],
                         [constants[name] for name in ("RolloutLeasePrefix", "PassedPrefix", "FailedPrefix", "MostResults")])
        self.assertEqual(re.findall("'([^']+)'", variables["oursOfNotes"]),
                         [constants["LeaseConfiguration"], constants["LeasePolicy"]])
        self.assertIn(constants["RolloutLeaseLabel"], str(policy["spec"]["validations"]))
        self.assertEqual(chart.of_kind(chart.render({"maxChangingNodes": 0}), "ValidatingAdmissionPolicy")[2:], [])

    def test_an_update_keeps_a_nodes_gpus(self) -> None:
        for daemon_set in chart.of_kind(chart.render(), "DaemonSet"):
            self.assertEqual(daemon_set["spec"]["updateStrategy"],
                             {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})
        for container in chart.containers_of(chart.render()).values():
            self.assertNotIn("lifecycle", container)  # nothing is run when it stops

    def test_edited_configurations_restart_no_pod(self) -> None:
        before = chart.daemon_sets(chart.render({"config": {"policies": "version: v2\n"}}))
        after = chart.daemon_sets(chart.render({"config": {"policies": "version: v2\npolicies: {}\n"}}))
        self.assertEqual(before, after)

    def notes(self, values: Any, namespace: str = "gpus") -> str:
        done = chart.run(chart.newest(), "install", "ferry", str(chart.CHART), "--dry-run=client", "--namespace", namespace,
                         values=chart.with_image(values))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("NOTES:")[1]

    def test_the_manual_removes_all_files_that_ferry_writes(self) -> None:
        page = (chart.REPOSITORY / "docs/uninstall.md").read_text()
        page = re.sub(r" \\\n +", " ", page.split("## When the uninstall fails")[0])  # a command on two lines
        manual = [re.sub(" +#.*", "", line) for line in page.splitlines() if line.startswith("    kubectl")]
        manual += re.findall(r"^\|.*`(kubectl [^`]+)` \|$", page, re.MULTILINE)  # those of the table
        words = (chart.REPOSITORY / "api/labels.h").read_text()
        taken_off = set(re.findall(r"([a-z-]+[.][a-z.]+/[a-zA-Z.-]+)-(?= |$)", "\n".join(manual), re.MULTILINE))
        for name, word in re.findall(r"k(\w+) = \"([^\"]+)\"", words):
            if name in ("StateLabel", "VgpuStateLabel") or name.endswith("Annotation") and word.startswith("gpu-ferry.io/"):
                self.assertIn(word, taken_off)

    def test_the_notes_name_the_next_steps(self) -> None:
        notes = self.notes
        self.assertIn("kubectl label --overwrite node NODE gpu-ferry.io/policy- gpu-ferry.io/state- "
                      "nvidia.com/gpu.workload.config=vm-passthrough", notes({}))
        self.assertNotIn("vfioManager", notes({}))
        self.assertIn("kubectl label namespace gpus pod-security.kubernetes.io/enforce=privileged", notes({}))
        self.assertIn("kubectl label namespace elsewhere ", notes({"namespaceOverride": "elsewhere"}))
        self.assertIn("If NVIDIA's gpu-operator runs on this cluster, set it to true", notes({}))
        self.assertIn("gpu-operator in nvidia hands nodes over", notes({"gpuOperator": {"enabled": True, "namespace": "nvidia"}}))
        self.assertIn("A node without labels becomes vm-vgpu", notes({"defaults": {"workload": "vm-vgpu"}}))
        self.assertIn("It runs on nodes with a label of gpuNodeLabels.", notes({}))
        self.assertIn("It runs on all nodes of nodeSelector.", notes({"gpuNodeLabels": []}))
        self.assertIn("hostd.enabled is false", notes({"hostd": {"enabled": False}}))
        self.assertIn("No admission policy", notes({"admissionPolicy": {"enabled": "never"}}))
        self.assertIn("the DaemonSets ferry (hostd), ferry-plugin, ferry-agent.", notes({}))
        self.assertIn("the DaemonSets ferry-plugin, ferry-agent.", notes({"hostd": {"enabled": False}}))
        with_claims = notes({"dra": {"enabled": True}, "admissionPolicy": {"enabled": "never"}})
        self.assertIn("the DaemonSets ferry (hostd), ferry-plugin, ferry-agent, ferry-dra (ResourceClaims).", with_claims)
        self.assertIn("the agent's token and that of `ferry dra` to its own node", with_claims)

    def test_the_notes_have_twelve_lines_at_most(self) -> None:
        worst = {"hostd": {"systemd": False}, "kata": {"enabled": True, "install": {"enabled": True}},
                 "defaults": {"workload": "vm-vgpu"}, "admissionPolicy": {"enabled": "never"}}
        without_hostd = {**worst, "hostd": {"enabled": False}}
        dra = {"dra": {"enabled": True}}
        for values in [*map(chart.sample, chart.SAMPLES), worst, without_hostd, {**worst, **dra}, {**without_hostd, **dra}]:
            lines = self.notes(values).strip().splitlines()
            self.assertLessEqual(len(lines), 12, lines)
            self.assertLessEqual(max(map(len, lines)), 130)
