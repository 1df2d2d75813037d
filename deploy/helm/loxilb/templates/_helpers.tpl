{{- /* Names have at most 63 characters, with suffixes such as -controller. */ -}}
{{- define "loxilb.name" -}}
{{- $name := .Release.Name }}
{{- if not (contains "loxilb" $name) }}{{ $name = printf "%s-loxilb" $name }}{{ end }}
{{- $name | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* Not empty if nodes run the daemon; empty if balancers outside of the cluster replace it. */ -}}
{{- define "loxilb.hasDaemon" -}}
{{ if not (and .Values.controller.enabled .Values.controller.loxiURL) }}yes{{ end }}
{{- end }}

{{- define "loxilb.selector" -}}
app.kubernetes.io/name: loxilb
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "loxilb.labels" -}}
{{ include "loxilb.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "loxilb.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default ($.Chart.AppVersion | replace "+" "-") }}{{ end }}
{{- end }}
{{- end }}

{{- /* A request to the API without TLS: at the node's address with api.access=open, else at 127.0.0.1. */ -}}
{{- define "loxilb.ask" -}}
httpGet:
  path: {{ .path }}
  port: {{ .values.api.port }}
  {{- if ne .values.api.access "open" }}
  host: 127.0.0.1
  {{- end }}
{{- end }}

{{- /* The port of the API at the node's address. */ -}}
{{- define "loxilb.metricsPort" -}}
{{ if eq .Values.api.access "token" }}{{ .Values.api.tlsPort }}{{ else }}{{ .Values.api.port }}{{ end }}
{{- end }}
