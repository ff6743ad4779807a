{{/* Name of a component's objects: RELEASE-keyward-COMPONENT, or without the repetition; fullnameOverride-COMPONENT if that is set. Takes a list: context, component. */}}
{{- define "keyward.name" -}}
{{- $root := index . 0 -}}
{{- $base := contains "keyward" $root.Release.Name | ternary $root.Release.Name (printf "%s-keyward" $root.Release.Name) -}}
{{- printf "%s-%s" (default $base $root.Values.fullnameOverride | trunc 50 | trimSuffix "-") (index . 1) -}}
{{- end }}

{{/* Labels that select a component's pods. Takes a list: context, component. */}}
{{- define "keyward.selector" -}}
app.kubernetes.io/name: keyward
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* A text as the value of a label, which takes no `+` and at most 63 characters. */}}
{{- define "keyward.label" -}}
{{- . | replace "+" "_" | trunc 63 | trimSuffix "-" | trimSuffix "_" | trimSuffix "." -}}
{{- end }}

{{/* All labels of a component. Takes a list: context, component. */}}
{{- define "keyward.labels" -}}
{{- $root := index . 0 -}}
{{ include "keyward.selector" . }}
app.kubernetes.io/version: {{ include "keyward.label" $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ include "keyward.label" (printf "%s-%s" $root.Chart.Name $root.Chart.Version) }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of a component's pods. Takes a list: context, component, its values. */}}
{{- define "keyward.podLabels" -}}
{{ include "keyward.labels" (list (index . 0) (index . 1)) }}
{{- with (index . 2).podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The image, by digest if there is one. Takes the chart's own context. */}}
{{- define "keyward.image" -}}
{{- with .Values.image -}}
{{- $_ := required "image.repository is missing: no public registry has keyward's image; push it to yours, and name it here" .repository -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Security context of a pod for Pod Security `restricted`; the group of its volumes is that of the program. The user is each image's own. */}}
{{- define "keyward.podSecurity" -}}
runAsNonRoot: true
fsGroup: 65532
# Once for a new volume: a server refuses a folder of records that its group may write.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Security context of keyward's own container for Pod Security `restricted`. */}}
{{- define "keyward.containerSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
readOnlyRootFilesystem: true
{{ include "keyward.workloadSecurity" . }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Security context of another container for Pod Security `restricted`. Its image decides on user and root file system. */}}
{{- define "keyward.workloadSecurity" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: ["ALL"]
{{- end }}

{{/* Probes of a container with a health listener. Takes the name of its port. Liveness never depends on a server. */}}
{{- define "keyward.probes" -}}
startupProbe:
  httpGet: { path: /startupz, port: {{ . }} }
  periodSeconds: 1
  failureThreshold: 300
livenessProbe:
  httpGet: { path: /livez, port: {{ . }} }
  periodSeconds: 10
readinessProbe:
  httpGet: { path: /readyz, port: {{ . }} }
  periodSeconds: 5
{{- end }}

{{/* Name of a component's service account. Takes a list: context, component, its values. */}}
{{- define "keyward.serviceAccount" -}}
{{- default (include "keyward.name" (list (index . 0) (index . 1))) (index . 2).serviceAccount.name -}}
{{- end }}

{{/* Priority, node selector and other keys of a pod's placement. Takes the component's values. */}}
{{- define "keyward.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
{{- with index $ $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* A list of TOML strings. */}}
{{- define "keyward.tomlList" -}}
[{{ range $i, $it := . }}{{ if $i }}, {{ end }}{{ $it | toJson }}{{ end }}]
{{- end }}
