{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "ferry.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ferry.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "ferry.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "ferry.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- define "ferry.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ferry.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The name of a part that has pods of its own, such as "agent", or of a Job: (list . PART). */}}
{{- define "ferry.nameOf" -}}
{{- include "ferry.joined" (list (include "ferry.fullname" (first .)) (last .)) }}
{{- end }}

{{/* (list NAME PART), within the 63 characters of a label. */}}
{{- define "ferry.joined" -}}
{{- printf "%s-%s" (first . | trunc (int (sub 62 (len (last .)))) | trimSuffix "-") (last .) }}
{{- end }}

{{/* The pods of a part have another name: the selector of hostd's DaemonSet, which no upgrade can change, would match them
     otherwise. */}}
{{- define "ferry.selectorLabelsOf" -}}
app.kubernetes.io/name: {{ include "ferry.joined" (list (include "ferry.name" (first .)) (last .)) }}
app.kubernetes.io/instance: {{ (first .).Release.Name }}
{{- end }}

{{/* The DaemonSet of such a part, down to what all their pods have: (list . PART). */}}
{{- define "ferry.daemonSet" -}}
{{- $root := first . }}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "ferry.nameOf" . }}
  namespace: {{ include "ferry.namespace" $root }}
  labels:
    {{- include "ferry.selectorLabelsOf" . | nindent 4 }}
    {{- include "ferry.chartLabels" $root | nindent 4 }}
    {{- with include "ferry.labelsOfUser" (list $root dict) }}
    {{- . | nindent 4 }}
    {{- end }}
  {{- include "ferry.annotations" $root }}
spec:
  selector:
    matchLabels: {{- include "ferry.selectorLabelsOf" . | nindent 6 }}
  {{- include "ferry.update" $root | nindent 2 }}
  template:
    metadata:
      labels:
        {{- include "ferry.selectorLabelsOf" . | nindent 8 }}
        {{- include "ferry.chartLabels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ last . }}
        {{- with include "ferry.labelsOfUser" (list $root $root.Values.podLabels) }}
        {{- . | nindent 8 }}
        {{- end }}
      {{- with $root.Values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      # A container that needs the token mounts it itself.
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- include "ferry.placement" $root | nindent 6 }}
{{- end }}

{{/* The user and group of `ferry dra` (docs/adr/0035). No file of a host or of another image belongs to this number. */}}
{{- define "ferry.draId" -}}
64712
{{- end }}

{{/* The name of Ferry's driver in ResourceSlices, DeviceClasses and the kubelet's folders (api/claim_files.h). */}}
{{- define "ferry.draDriver" -}}
gpu-ferry.io
{{- end }}

{{/* The name of a DeviceClass of `more`. In the short form it is made of the resource's: nvidia.com/AD102GL_L40S gives
     ad102gl-l40s.nvidia.com. */}}
{{- define "ferry.nameOfClass" -}}
{{- if .name -}}
{{ .name }}
{{- else -}}
{{- $parts := splitList "/" .extendedResourceName -}}
{{ last $parts | lower | replace "_" "-" | replace "." "-" }}.{{ first $parts }}
{{- end -}}
{{- end }}

{{/* hostd's options for the short form of `more`: it refuses a policy by which the device plugin has the name, too. */}}
{{- define "ferry.namedClasses" -}}
{{- $ofModels := and (ne nil .Values.plugin.kataGpuAlias) (eq "" (toString .Values.plugin.kataGpuAlias)) }}
{{- if and .Values.dra.enabled (or $ofModels (ne (include "ferry.pluginMode" .) "kata")) -}}
{{- range $one := .Values.dra.deviceClasses.more }}
{{- with or $one.model $one.vgpuType }}
- {{ printf "--class=%s=%s" $one.extendedResourceName . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Options for the names of resources, as arguments of a container. */}}
{{- define "ferry.pluginNames" -}}
{{- range .Values.plugin.aliases }}
        - {{ printf "--alias=%s" . | quote }}
{{- end }}
{{- with .Values.plugin.nameTemplate }}
        - {{ printf "--name-template=%s" . | quote }}
{{- end }}
{{- with .Values.plugin.vgpuNameTemplate }}
        - {{ printf "--vgpu-name-template=%s" . | quote }}
{{- end }}
{{- end }}

{{/* The kubelet's folders that hostd gives to the group of `ferry dra`. */}}
{{- define "ferry.draFolders" -}}
{{- $kubelet := (include "ferry.paths" . | fromJson).kubelet -}}
{{ $kubelet }}/plugins/{{ include "ferry.draDriver" . }}
{{ $kubelet }}/plugins_registry
{{- end }}

{{/* hostd's folder for the metadata of claims, whose parents `ferry dra` cannot write either. */}}
{{- define "ferry.claimMetadata" -}}
{{- $kubelet := (include "ferry.paths" . | fromJson).kubelet -}}
{{ $kubelet }}/plugins/{{ include "ferry.draDriver" . }}.hostd
{{- end }}

{{- define "ferry.labels" -}}
{{ include "ferry.labelsWith" (list . dict) }}
{{- end }}

{{/* The labels of an object with labels of its own in the values: (list . LABELS). */}}
{{- define "ferry.labelsWith" -}}
{{ include "ferry.selectorLabels" (first .) }}
{{ include "ferry.chartLabels" (first .) }}
{{- with include "ferry.labelsOfUser" . }}
{{ . }}
{{- end }}
{{- end }}

{{/* It has the chart's own name even if another chart includes this one under an alias: `kubectl ferry gather` finds pods by it. */}}
{{- define "ferry.chartLabel" -}}
helm.sh/chart: {{ printf "ferry-%s" .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ferry.chartLabels" -}}
{{ include "ferry.chartLabel" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* commonLabels, merged with labels for this object, which have priority: (list . OTHERS). */}}
{{- define "ferry.labelsOfUser" -}}
{{- with merge (dict) (default dict (last .)) (default dict (first .).Values.commonLabels) }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* The annotations of an object's metadata. */}}
{{- define "ferry.annotations" -}}
{{- with .Values.commonAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}

{{- define "ferry.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "ferry.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The account of the pods of hostd and of the plugin, which has no rights. */}}
{{- define "ferry.nodeAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (printf "%s-node" (include "ferry.fullname" .)) .Values.serviceAccount.nodeName }}
{{- else }}
{{- default "default" .Values.serviceAccount.nodeName }}
{{- end }}
{{- end }}

{{/* The account of `ferry dra`. */}}
{{- define "ferry.draAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "ferry.nameOf" (list . "dra")) .Values.serviceAccount.draName }}
{{- else }}
{{- default "default" .Values.serviceAccount.draName }}
{{- end }}
{{- end }}

{{/* Selects nodes of `gpuNodeLabels` without gpu-ferry.io/deploy=false that also fit `affinity`. Terms are alternatives, so each
     term of one list is joined with each term of the other. */}}
{{- define "ferry.affinity" -}}
{{- $key := "requiredDuringSchedulingIgnoredDuringExecution" }}
{{- $given := default dict .Values.affinity }}
{{- $ofNodes := default dict $given.nodeAffinity }}
{{- $given_terms := dig $key "nodeSelectorTerms" list $ofNodes | default (list dict) }}
{{- $terms := list }}
{{- range $label := default (list "") .Values.gpuNodeLabels }}
{{- $own := list (dict "key" "gpu-ferry.io/deploy" "operator" "NotIn" "values" (list "false")) }}
{{- if $label }}
{{- $own = prepend $own (dict "key" $label "operator" "In" "values" (list "true")) }}
{{- end }}
{{- range $term := $given_terms }}
{{- $joined := dict "matchExpressions" (concat $own (default list $term.matchExpressions)) }}
{{- $terms = append $terms (merge $joined (omit $term "matchExpressions")) }}
{{- end }}
{{- end }}
{{- $nodeAffinity := merge (dict $key (dict "nodeSelectorTerms" $terms)) (omit $ofNodes $key) }}
{{- toYaml (merge (dict "nodeAffinity" $nodeAffinity) (omit $given "nodeAffinity")) }}
{{- end }}

{{/* Selects the nodes on which each DaemonSet has a pod. */}}
{{- define "ferry.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
affinity: {{- include "ferry.affinity" . | nindent 2 }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The directories of `hostPaths`, as JSON: those that the user sets, else the distribution's, else the usual ones. */}}
{{- define "ferry.paths" -}}
{{- $known := .Files.Get "files/distributions.yaml" | fromYaml }}
{{- $paths := dict }}
{{- range $source := list $known.usual (get $known .Values.distribution | default dict) .Values.hostPaths }}
{{- range $key, $path := $source }}
{{- if not (or (kindIs "invalid" $path) (eq (toString $path) "")) }}
{{- $_ := set $paths $key $path }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $paths }}
{{- end }}

{{/* "yes" if hostd's container has the host's root. */}}
{{- define "ferry.hostRoot" -}}
{{- if or .Values.hostd.hostTools .Values.hostd.privileged }}yes{{ end }}
{{- end }}

{{/* SELinux's label of the pods with directories of the host. OpenShift compares the level, too, and gives a pod without
     options a level of its namespace: with options and without a level no pod would fit. */}}
{{- define "ferry.seLinuxOptions" -}}
{{- $level := ternary (dict "level" "s0") dict .Values.openshift.enabled }}
{{- with .Values.seLinuxOptions }}
{{- toYaml (merge (dict) . $level) }}
{{- end }}
{{- end }}

{{- define "ferry.hostdCapabilities" -}}
# Loads vfio drivers.
- SYS_MODULE
# These find the users of a GPU among all processes of the host.
- SYS_PTRACE
- DAC_READ_SEARCH
- CHECKPOINT_RESTORE
{{- if .Values.hostd.hostTools }}
# Runs the driver's tools below the host's root.
- SYS_CHROOT
{{- end }}
{{- range .Values.hostd.extraCapabilities }}
- {{ . }}
{{- end }}
{{- end }}

{{- define "ferry.update" -}}
minReadySeconds: {{ .Values.minReadySeconds }}
revisionHistoryLimit: {{ .Values.revisionHistoryLimit }}
updateStrategy:
  type: {{ .Values.updateStrategy.type }}
  {{- if eq .Values.updateStrategy.type "RollingUpdate" }}
  rollingUpdate: {{- toYaml .Values.updateStrategy.rollingUpdate | nindent 4 }}
  {{- end }}
{{- end }}

{{/* Empty if neither the image nor its registry is set. */}}
{{- define "ferry.imageName" -}}
{{- with .Values.image.registry }}{{ . }}/{{ end }}
{{- default (ternary "ferry" "" (not (empty .Values.image.registry))) .Values.image.repository }}
{{- end }}

{{- define "ferry.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" (include "ferry.imageName" .) .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" (include "ferry.imageName" .) (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The ConfigMaps that the agent reads, one name a line: the chart's own, even if it does not make them, and further ones. */}}
{{- define "ferry.configMaps" -}}
{{ include "ferry.fullname" . }}-policies
{{ include "ferry.fullname" . }}-vgpu-profiles
{{- range .Values.config.configMaps }}
{{ . }}
{{- end }}
{{- end }}

{{- define "ferry.pluginMode" -}}
{{- default (ternary "both" "kubevirt" .Values.kata.enabled) .Values.plugin.mode }}
{{- end }}

{{/* "yes" if hostd asks the container runtime for its Kata handlers. */}}
{{- define "ferry.kataAsked" -}}
{{- if or (include "ferry.kataReady" .) (include "ferry.kataInstall" .) }}yes{{ end }}
{{- end }}

{{/* "yes" if RuntimeClasses select nodes by the label of a ready handler. */}}
{{- define "ferry.kataReady" -}}
{{- if and .Values.kata.enabled .Values.kata.readyNodesOnly }}yes{{ end }}
{{- end }}

{{/* "yes" if Ferry installs Kata's runtimes on nodes. */}}
{{- define "ferry.kataInstall" -}}
{{- if and .Values.kata.enabled .Values.kata.install.enabled }}yes{{ end }}
{{- end }}

{{/* The ConfigMap with the class file. */}}
{{- define "ferry.kataClasses" -}}
{{- default (printf "%s-kata-classes" (include "ferry.fullname" .)) .Values.kata.install.configMap }}
{{- end }}

{{- define "ferry.admissionPolicy" -}}
{{- $enabled := .Values.admissionPolicy.enabled }}
{{- $there := semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}
{{- if or (eq $enabled "always") (and (eq $enabled "auto") $there) }}yes{{ end }}
{{- end }}

{{- /* Read-only at every depth, if Kubernetes has the field and the container runtime supports it. A plain read-only mount of
/sys or /dev leaves the mounts below it writable. */}}
{{- define "ferry.readOnly" -}}
readOnly: true{{ if semverCompare ">=1.31.0-0" .Capabilities.KubeVersion.Version }}, recursiveReadOnly: IfPossible{{ end }}
{{- end }}

{{/* From Kubernetes 1.30 on AppArmor has a field; before, it has an annotation. */}}
{{- define "ferry.appArmorField" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}yes{{ end }}
{{- end }}

{{/* "yes" if a pod with these tolerations can be placed on the node: (list NODE TOLERATIONS). Kubernetes adds taints of
     node.kubernetes.io itself; they are temporary, or each DaemonSet tolerates them. */}}
{{- define "ferry.tolerated" -}}
{{- $tolerations := default list (last .) }}
{{- $all := true }}
{{- range $taint := default list (default dict (first .).spec).taints }}
{{- $harmless := or (eq $taint.effect "PreferNoSchedule") (hasPrefix "node.kubernetes.io/" $taint.key) }}
{{- range $one := $tolerations }}
{{- $exists := eq (default "Equal" $one.operator) "Exists" }}
{{- $key := or (eq (default "" $one.key) $taint.key) (and $exists (not $one.key)) }}
{{- $value := or $exists (eq (default "" $one.value) (default "" $taint.value)) }}
{{- $effect := or (not $one.effect) (eq (default "" $one.effect) $taint.effect) }}
{{- $harmless = or $harmless (and $key $value $effect) }}
{{- end }}
{{- $all = and $all $harmless }}
{{- end }}
{{- if $all }}yes{{ end }}
{{- end }}

{{/* The number of nodes that get Ferry's pods, by their labels and taints. There is no number without a cluster (`helm template`).
     An installer who may not create the roles may not list nodes either. A lookup without that right ends the installation. */}}
{{- define "ferry.nodesToday" -}}
{{- $nodes := list }}
{{- if and .Values.rbac.create (not (default dict .Values.affinity).nodeAffinity) }}
{{- $nodes = (lookup "v1" "Node" "" "").items | default list }}
{{- end }}
{{- $matching := 0 }}
{{- $tainted := 0 }}
{{- range $node := $nodes }}
{{- $labels := default dict $node.metadata.labels }}
{{- $fits := ne (toString (get $labels "gpu-ferry.io/deploy")) "false" }}
{{- range $key, $value := $.Values.nodeSelector }}
{{- $fits = and $fits (hasKey $labels $key) (eq (toString (get $labels $key)) $value) }}
{{- end }}
{{- $has := not $.Values.gpuNodeLabels }}
{{- range $label := $.Values.gpuNodeLabels }}
{{- $has = or $has (eq (toString (get $labels $label)) "true") }}
{{- end }}
{{- if and $fits $has (include "ferry.tolerated" (list $node $.Values.tolerations)) }}
{{- $matching = add1 $matching }}
{{- else if and $fits $has }}
{{- $tainted = add1 $tainted }}
{{- end }}
{{- end }}
{{- $where := ternary "nodes with a label of gpuNodeLabels" "all nodes of nodeSelector" (not (empty .Values.gpuNodeLabels)) }}
{{- if and $nodes (or $matching $tainted) }}
{{- printf "It runs on %s: %d of %d nodes today." $where (int $matching) (len $nodes) }}
{{- with int $tainted }}
{{- printf " %d more: their taints are not in tolerations." . }}
{{- end }}
{{- else if and $nodes .Values.gpuNodeLabels }}
{{- printf "No node of %d has a label of gpuNodeLabels: install Node Feature Discovery, or --set-json 'gpuNodeLabels=[]'." (len $nodes) }}
{{- else if $nodes }}
{{- printf "No node of %d has the labels of nodeSelector: kubectl get nodes --show-labels" (len $nodes) }}
{{- else }}
{{- printf "It runs on %s." $where }}
{{- end }}
{{- end }}
