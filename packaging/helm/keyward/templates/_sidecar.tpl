{{/*
The agent as a native sidecar of another chart's pod. That chart has this one as a dependency called `keyward`, and includes:

  initContainers:    {{- include "keyward.sidecar.container" (dict "root" . "sidecar" .Values.sidecar) | nindent 8 }}
  volumes:           {{- include "keyward.sidecar.volumes" (dict "root" . "sidecar" .Values.sidecar "name" "web-keyward") | nindent 8 }}
  securityContext:   {{- include "keyward.sidecar.podSecurity" . | nindent 8 }}
  in the container:  {{- include "keyward.sidecar.mount" . | nindent 12 }}
  a document:        {{- include "keyward.sidecar.configMap" (dict "root" . "sidecar" .Values.sidecar "name" "web-keyward") }}
  annotations:       {{- include "keyward.sidecar.annotations" (dict "root" . "sidecar" .Values.sidecar "name" "web-keyward") | nindent 8 }}

The annotations belong to the pod template: keyward reloads at SIGHUP, which nothing sends in a pod, so that only new pods have a changed
configuration. Leave them out of a Job, whose pod template cannot change.

`sidecar` is merged over this chart's values of that name. A job ends with its own containers: the sidecar ends after them.
*/}}
{{- define "keyward.sidecar.values" -}}
{{- mergeOverwrite (deepCopy .root.Subcharts.keyward.Values.sidecar) (deepCopy (default dict .sidecar)) | toYaml -}}
{{- end }}

{{/* The shape of packaging/kubernetes/sidecar.yaml, which `packaging/check chart` compares with this. All hardening is the container's own. */}}
{{- define "keyward.sidecar.container" -}}
{{- $values := include "keyward.sidecar.values" . | fromYaml -}}
{{- $chart := .root.Subcharts.keyward -}}
- name: keyward
  image: {{ include "keyward.image" $chart }}
  imagePullPolicy: {{ $chart.Values.image.pullPolicy }}
  # A native sidecar: it starts before the containers, and ends after them.
  restartPolicy: Always
  args: ["run", "--config", "/etc/keyward/keyward.toml"]
  {{- if or $values.clientId $values.extraEnv }}
  env:
    {{- if $values.clientId }}
    - name: AZURE_CLIENT_ID
      value: {{ $values.clientId | quote }}
    - name: AZURE_TENANT_ID
      value: {{ required "sidecar.tenantId is missing: the tenant of sidecar.clientId" $values.tenantId | quote }}
    - name: AZURE_FEDERATED_TOKEN_FILE
      value: /var/run/secrets/keyward/azure-identity-token
    {{- end }}
    {{- with $values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  ports:
    - name: probes
      containerPort: {{ $values.healthPort }}
  {{- include "keyward.probes" "probes" | nindent 2 }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    {{- include "keyward.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - name: keyward-config
      mountPath: /etc/keyward
      readOnly: true
    {{- if $values.clientId }}
    - name: keyward-identity
      mountPath: /var/run/secrets/keyward
      readOnly: true
    {{- end }}
    - name: keyward-run
      mountPath: /run/keyward
    - name: keyward-state
      mountPath: /var/lib/keyward
{{- end }}

{{/* The group of the files that keyward writes. It is no `fsGroup`, which would change group and mode of the application's own volumes. */}}
{{- define "keyward.sidecar.podSecurity" -}}
supplementalGroups: [65532]
{{- end }}

{{- define "keyward.sidecar.mount" -}}
- name: keyward-run
  mountPath: /run/keyward
  readOnly: true
{{- end }}

{{- define "keyward.sidecar.volumes" -}}
{{- $values := include "keyward.sidecar.values" . | fromYaml -}}
- name: keyward-config
  configMap:
    name: {{ .name }}
{{- if $values.clientId }}
- name: keyward-identity
  projected:
    sources:
      - serviceAccountToken:
          path: azure-identity-token
          audience: {{ $values.audience }}
          expirationSeconds: 3600
{{- end }}
# In memory, so that no secret is ever on a disk.
- name: keyward-run
  emptyDir: { medium: Memory, sizeLimit: 4Mi }
# Outlives a restart of the container, so that a container that fails again and again still paces its calls.
- name: keyward-state
  emptyDir: { medium: Memory, sizeLimit: 1Mi }
{{- end }}

{{- define "keyward.sidecar.configMap" -}}
{{- $values := include "keyward.sidecar.values" . | fromYaml -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  labels:
    app.kubernetes.io/name: keyward
    app.kubernetes.io/instance: {{ .root.Release.Name }}
    app.kubernetes.io/component: sidecar
data:
  keyward.toml: |
    {{- required "sidecar.config is missing: the configuration of the agent" $values.config | nindent 4 }}
{{- end }}

{{- define "keyward.sidecar.annotations" -}}
keyward.dev/config-hash: {{ include "keyward.sidecar.configMap" . | sha256sum }}
{{- end }}
