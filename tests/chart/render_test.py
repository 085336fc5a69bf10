# SPDX-License-Identifier: Apache-2.0
"""What Helm makes of the chart, by every release of it that is tried."""

import json
import os
import re
import subprocess
import unittest
from typing import Any

import yaml

import chart

PROFILES = chart.REPOSITORY / "configs/vgpu-config.yaml"
WRONG = chart.sample(chart.REPOSITORY / "tests/chart/wrong-values.yaml")


class RenderTest(unittest.TestCase):
    def test_lint(self) -> None:
        for version, helm in chart.helms().items():
            for file in chart.SAMPLES:
                with self.subTest(helm=version, values=file.name):
                    done = chart.run(helm, "lint", "--strict", str(chart.CHART), "--values", str(file))
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_all_releases_of_helm_render_the_same(self) -> None:
        for file in chart.SAMPLES:
            with self.subTest(values=file.name):
                first, *others = [chart.render_all(chart.sample(file), helm=helm) for helm in chart.helms().values()]
                for other in others:
                    self.assertEqual(first, other)

    def test_what_is_rendered_is_of_kubernetes(self) -> None:
        if not os.environ["FERRY_K8S_CHECKS"]:
            self.skipTest("k8s-strict cannot be had, and nothing is held against the types of Kubernetes")
        program = os.environ["FERRY_K8S_CHECKS"] + "/k8s-strict"
        for file in chart.SAMPLES:
            for version in ("1.20.2", "1.36.0"):
                with self.subTest(values=file.name, kubernetes=version):
                    # The Prometheus operator's kinds are not Kubernetes' own.
                    objects = [one for one in chart.render_all(chart.sample(file), kube_version=version)
                               if not one["apiVersion"].startswith("monitoring.coreos.com/")]
                    done = subprocess.run([program, "-"], input=yaml.safe_dump_all(objects), text=True,
                                          capture_output=True, check=False)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # It does refuse.
        objects = chart.render()
        chart.pod_of(objects)["spec"]["hostNetwrok"] = True
        done = subprocess.run([program, "-"], input=yaml.safe_dump_all(objects), text=True, capture_output=True,
                              check=False)
        self.assertIn('unknown field "spec.template.spec.hostNetwrok"', done.stdout)
        done = subprocess.run([program, str(chart.CHART.parent / "static/ferry.yaml")], check=False)
        self.assertEqual(done.returncode, 0)

    def test_the_static_manifests_are_the_chart_as_it_comes(self) -> None:
        folder = chart.CHART.parent / "static"
        now = subprocess.run([folder / "render", "--print"], capture_output=True, text=True, check=True).stdout
        self.assertEqual((folder / "ferry.yaml").read_text(), now, "hint: charts/static/render")

    def test_the_virtual_node_runs_these_containers(self) -> None:
        program = chart.REPOSITORY / "tests/chart/pod-spec"
        folder = chart.REPOSITORY / "tests/node/scenarios/container"
        for name, values in {"pod.json": [], "host-tools.json": ["hostd.hostTools=true"],
                             "metrics.json": ["agent.metrics.enabled=true"]}.items():
            with self.subTest(file=name):
                now = subprocess.run([program, *values], capture_output=True, text=True, check=True).stdout
                self.assertEqual((folder / name).read_text(), now,
                                 f"hint: {' '.join([str(program), *values])} > {folder / name}")

    def test_wrong_values_are_refused(self) -> None:
        for version, helm in chart.helms().items():
            for wrong in WRONG:
                with self.subTest(helm=version, values=wrong["values"]):
                    done = chart.run(helm, "template", "ferry", str(chart.CHART), values=wrong["values"])
                    self.assertNotEqual(done.returncode, 0)
                    if "says" in wrong:
                        self.assertIn(wrong["says"], done.stderr)
                        continue
                    self.assertIn("schema", done.stderr)
                    self.assertRegex(done.stderr, rf"\b{re.escape(wrong['names'])}\b")

    def test_the_schema_knows_the_values_that_there_are_and_no_others(self) -> None:
        schema = json.loads((chart.CHART / "values.schema.json").read_text())
        values = chart.sample(chart.CHART / "values.yaml")
        free = {"nodes.selector", "podLabels", "podAnnotations", "seLinuxOptions"}

        def compare(where: str, part: Any, value: Any) -> None:
            self.assertIs(part.get("additionalProperties"), False, where)
            known = set(part["properties"]) - ({"global"} if not where else set())
            self.assertEqual(known, set(value), where or "the top")
            for key, below in value.items():
                name = f"{where}.{key}".strip(".")
                if isinstance(below, dict) and name not in free and not name.endswith(("resources", ".labels")):
                    compare(name, part["properties"][key], below)

        compare("", schema, values)

    def test_every_value_is_described(self) -> None:
        lines = (chart.CHART / "values.yaml").read_text().splitlines()
        described = {"logLevel", "logFormat", "resources"}  # once, or by themselves
        for number, line in enumerate(lines):
            key = re.match(r"( *)(\w+):", line)
            if not key or key[2] in described or line.strip().startswith(("requests", "limits")):
                continue
            before = lines[number - 1].strip()
            parent = re.match(rf"{key[1]}\w+:", lines[number - 1]) is not None
            # Under a comment, or beside a key that is; or all there is of a value whose name says it.
            self.assertTrue(before.startswith("#") or parent or (key[1] and before.endswith(":")),
                            f"values.yaml:{number + 1}: {key[2]} is not described")

    def test_profiles_are_those_of_the_repository(self) -> None:
        self.assertEqual((chart.CHART / "files/vgpu-config.yaml").read_text(), PROFILES.read_text(),
                         f"hint: cp {PROFILES} {chart.CHART}/files/")
        (config,) = chart.of_kind(chart.render(), "ConfigMap")
        self.assertEqual(config["data"]["config.yaml"], PROFILES.read_text())

    def test_texts_come_through_as_they_are(self) -> None:
        text = "version: v2\n\n# {{ no template }}\npolicies:\n  a:\n  - {devices: all, mode: host}  # trailing\n"
        for helm in chart.helms().values():
            objects = chart.render({"config": {"policies": text}, "kata": {"enabled": True, "classes": text}}, helm=helm)
            data = {one["metadata"]["name"]: one["data"] for one in chart.of_kind(objects, "ConfigMap")}
            self.assertEqual(data["ferry-policies"]["config.yaml"], text)
            self.assertEqual(data["ferry-kata-classes"]["classes.yaml"], text)

    def test_the_versions_are_those_of_the_program(self) -> None:
        said = subprocess.run([os.environ["FERRY_BIN"] + "/ferry", "--version"], capture_output=True, text=True,
                              check=True).stdout.split()[-1]
        about = chart.sample(chart.CHART / "Chart.yaml")
        self.assertEqual(about["appVersion"], said)
        image = chart.containers_of(chart.render())["agent"]["image"]
        self.assertEqual(image, f"ferry:{said}")

    def test_an_older_cluster_is_refused(self) -> None:
        for helm in chart.helms().values():
            done = chart.run(helm, "template", "ferry", str(chart.CHART), "--kube-version", "1.19.9")
            self.assertIn("incompatible with Kubernetes v1.19.9", done.stderr)
            self.assertEqual(chart.run(helm, "template", "ferry", str(chart.CHART), "--kube-version", "1.20.2").returncode, 0)

    def test_the_package_has_all(self) -> None:
        for version, helm in chart.helms().items():
            with self.subTest(helm=version):
                done = subprocess.run(
                    f"d=$(mktemp -d) && {helm} package {chart.CHART} -d $d >&2 && {helm} template ferry $d/*.tgz "
                    "--namespace gpus --kube-version 1.36.0; rm -rf $d", shell=True, capture_output=True, text=True,
                    check=True)
                packed = [document for document in yaml.safe_load_all(done.stdout) if document]
                self.assertEqual(packed, chart.render_all(helm=helm))
