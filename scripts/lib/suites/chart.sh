# shellcheck shell=bash disable=SC2154 # scripts/lib/suite assigns root, jobs and results
# SPDX-License-Identifier: Apache-2.0
# The Helm chart and the image: what is rendered, refused and granted.

prepare() {
    install_packages chart
    build release ferry ferry-agent ferry-dra ferry-fetch ferry-virt kubectl-ferry
    # run says what it leaves out.
    "$root/scripts/lib/helm" >/dev/null || true
    "$root/scripts/lib/kubernetes" >/dev/null || true
    "$root/scripts/lib/prometheus" >/dev/null || true
    "$root/scripts/lib/grafana-schema" >/dev/null || true
    "$root/scripts/lib/kubevirt-strict" >/dev/null || true
    "$root/scripts/lib/openshift-admit" >/dev/null || true
}

run() {
    local status=0 prometheus
    "$root/scripts/lib/helm" >/dev/null || skipped 'a Helm cannot be had: its chart is tried with the other one or with none'
    "$root/scripts/lib/kubernetes" --find >/dev/null ||
        skipped 'k8s-strict and k8s-admit cannot be had: no manifest is held against the types of Kubernetes'
    if prometheus=$("$root/scripts/lib/prometheus"); then
        export FERRY_PROMTOOL=$prometheus/promtool FERRY_PROMETHEUS=$prometheus/prometheus
    else
        unset FERRY_PROMTOOL FERRY_PROMETHEUS
        skipped 'Prometheus cannot be had: no alert is tried, and the agent is not scraped'
    fi
    if FERRY_GRAFANA_SCHEMA=$("$root/scripts/lib/grafana-schema"); then export FERRY_GRAFANA_SCHEMA; else
        unset FERRY_GRAFANA_SCHEMA
        skipped "Grafana's types cannot be had: the dashboard is not held against them"
    fi
    if FERRY_KUBEVIRT_STRICT=$("$root/scripts/lib/kubevirt-strict"); then export FERRY_KUBEVIRT_STRICT; else
        unset FERRY_KUBEVIRT_STRICT
        skipped 'kubevirt-strict cannot be had: no manifest is held against the types and schemas of KubeVirt'
    fi
    if FERRY_OPENSHIFT_ADMIT=$("$root/scripts/lib/openshift-admit"); then export FERRY_OPENSHIFT_ADMIT; else
        unset FERRY_OPENSHIFT_ADMIT
        skipped "OpenShift's admission cannot be had: no pod is admitted by its constraints"
    fi
    unittests "$root/tests/chart/run" || status=$?
    case $status in
    0) passed ;;
    3) skipped 'the chart: there is no Helm to be had' ;;
    *) failed 'the chart' ;;
    esac
}
