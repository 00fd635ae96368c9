{{- define "kubothek.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* A name for what is of the whole cluster: other releases may be in other namespaces. */}}
{{- define "kubothek.clusterName" -}}
{{ include "kubothek.name" . }}-{{ .Release.Namespace }}
{{- end -}}

{{- define "kubothek.selector" -}}
app.kubernetes.io/name: kubothek
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "kubothek.labels" -}}
app.kubernetes.io/name: kubothek
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kubothek
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* An image reference from {repository, tag, digest} and the default tag: dict "image" … "tag" … */}}
{{- define "kubothek.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end -}}
{{- end -}}

{{/* The served namespaces, as a JSON list; the release's own if none is named. */}}
{{- define "kubothek.namespaces" -}}
{{ .Values.namespaces | default (list .Release.Namespace) | toJson }}
{{- end -}}

{{/* What the operator may do in each namespace that it serves. tests/chart compares it with the calls it makes. */}}
{{- define "kubothek.operatorRules" -}}
- apiGroups: [kubothek.io]
  resources: [objectstores, engines, cubes, datasets, commits, queries, compactions, verifications, gcpolicies, skippingindices, repositories, syncs]
  verbs: [get, list, watch]
- apiGroups: [kubothek.io]
  resources: [objectstores/status, engines/status, cubes/status, datasets/status, commits/status, queries/status, compactions/status, verifications/status, gcpolicies/status, skippingindices/status, repositories/status, syncs/status]
  verbs: [patch]
# The Datasets of a Cube; the data-protection finalizer of one with deletionPolicy Delete.
- apiGroups: [kubothek.io]
  resources: [datasets]
  verbs: [create, patch]
# Runs whose spec.ttlSecondsAfterFinished is over.
- apiGroups: [kubothek.io]
  resources: [commits, queries, compactions, verifications]
  verbs: [delete]
# The same finalizer of a SkippingIndex.
- apiGroups: [kubothek.io]
  resources: [skippingindices]
  verbs: [patch]
# Needed to own pods, and for a Cube its Datasets, where OwnerReferencesPermissionEnforcement is on.
- apiGroups: [kubothek.io]
  resources: [objectstores/finalizers, engines/finalizers, cubes/finalizers, datasets/finalizers, commits/finalizers, queries/finalizers, compactions/finalizers, verifications/finalizers, gcpolicies/finalizers, skippingindices/finalizers, syncs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  # Patching gives a job to a driver that waits: what may create pods can do no more with it.
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, delete]
# What the namespace gives to pods: whether an Engine asks for more.
- apiGroups: [""]
  resources: [limitranges, resourcequotas]
  verbs: [list, watch]
# The private key of a new ledger, and the secret of each driver pod: created once, never read.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
# Why a pod does not start stands only in its events.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
