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

{{- define "ferry.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ferry.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The agent's pods have another name: the selector of the DaemonSet with hostd and the plugin, which no upgrade can change,
     would match them otherwise. */}}
{{- define "ferry.agentName" -}}
{{- printf "%s-agent" (include "ferry.fullname" . | trunc 57 | trimSuffix "-") }}
{{- end }}

{{- define "ferry.agentSelectorLabels" -}}
app.kubernetes.io/name: {{ include "ferry.name" . | trunc 57 | trimSuffix "-" }}-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The agent's user and group. No file of a host or of another image belongs to this number. */}}
{{- define "ferry.agentId" -}}
64711
{{- end }}

{{- define "ferry.labels" -}}
{{ include "ferry.selectorLabels" . }}
{{ include "ferry.chartLabels" . }}
{{- end }}

{{- define "ferry.chartLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "ferry.account" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "ferry.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The account of hostd and the plugin, which has no rights. */}}
{{- define "ferry.nodeAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (printf "%s-node" (include "ferry.fullname" .)) .Values.serviceAccount.nodeName }}
{{- else }}
{{- default "default" .Values.serviceAccount.nodeName }}
{{- end }}
{{- end }}

{{/* On which nodes both DaemonSets have a pod. */}}
{{- define "ferry.placement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodes.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodes.selector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      {{- range default (list "") .Values.nodes.labels }}
      - matchExpressions:
        {{- if . }}
        - {key: {{ . }}, operator: In, values: ["true"]}
        {{- end }}
        - {key: gpu-ferry.io/deploy, operator: NotIn, values: ["false"]}
      {{- end }}
{{- with .Values.nodes.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "ferry.update" -}}
minReadySeconds: {{ .Values.minReadySeconds }}
updateStrategy:
  type: RollingUpdate
  rollingUpdate:
    maxUnavailable: {{ .Values.maxUnavailable }}
{{- end }}

{{- define "ferry.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The ConfigMaps that the agent reads, a name a line: the chart's own, whether they are made or not, and others. */}}
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

{{/* Whether hostd asks the container runtime which of Kata's handlers it has. */}}
{{- define "ferry.kataAsked" -}}
{{- if or (include "ferry.kataReady" .) (include "ferry.kataInstall" .) }}yes{{ end }}
{{- end }}

{{/* Whether RuntimeClasses ask for a node's label. */}}
{{- define "ferry.kataReady" -}}
{{- if and .Values.kata.enabled .Values.kata.readyNodesOnly }}yes{{ end }}
{{- end }}

{{/* Whether Ferry puts Kata's runtimes on nodes. */}}
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

{{- /* Read-only at every depth, where Kubernetes has the field and the container runtime can: a plain read-only mount of
/sys or /dev leaves the mounts below it writable. */}}
{{- define "ferry.readOnly" -}}
readOnly: true{{ if semverCompare ">=1.31.0-0" .Capabilities.KubeVersion.Version }}, recursiveReadOnly: IfPossible{{ end }}
{{- end }}

{{/* AppArmor has a field from 1.30 on, and an annotation before. */}}
{{- define "ferry.appArmorField" -}}
{{- if semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version }}yes{{ end }}
{{- end }}
