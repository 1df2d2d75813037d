{{- /*
The pod of kube-loxilb. root: the chart's context; account: its ServiceAccount; hook: arguments before
its flags, for the pod of a hook, which ends by itself.
*/ -}}
{{- define "loxilb.controllerPod" -}}
{{- $root := .root }}
{{- $token := eq $root.Values.api.access "token" }}
{{- $hook := .hook -}}
serviceAccountName: {{ .account }}
{{- with $root.Values.controller }}
priorityClassName: {{ .priorityClassName }}
enableServiceLinks: false
{{- if $hook }}
restartPolicy: Never
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if and (not $hook) (gt (int .replicas) 1) }}
topologySpreadConstraints: # so the death of a node does not end all replicas
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "loxilb.controllerSelector" $root | nindent 8 }}
{{- end }}
containers:
  - name: kube-loxilb
    image: {{ include "loxilb.controllerImage" $root }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args:
      {{- range $hook }}
      - {{ . }}
      {{- end }}
      {{- if .loxiURL }}
      - {{ printf "--loxiURL=%s" (join "," .loxiURL) | quote }}
      {{- else }}
      - --balancer-service={{ $root.Release.Namespace }}/loxilb-lb-service
      - --balancer-port={{ include "loxilb.metricsPort" $root }}
      {{- end }}
      {{- if $token }}
      - --balancer-scheme=https
      - --ca-file=/etc/loxilb/api/{{ .caKey }}
      - --token-file=/etc/loxilb/api/token
      {{- with .serverName }}
      - --server-name={{ . }}
      {{- end }}
      {{- end }}
      {{- with .addresses }}
      - {{ include "loxilb.pools" . | quote }}
      {{- end }}
      {{- if .defaultClass }}
      - --default-class
      {{- end }}
      {{- if .roles }}
      - --setRoles=0.0.0.0
      {{- if gt (int .instances) 1 }}
      - --numZoneInstances={{ int .instances }}
      - --spread-vips
      {{- end }}
      {{- end }}
      - --zone={{ .zone }}
      - --setLBMode={{ .mode }}
      {{- if .usePodNetwork }}
      - --usePodNetwork
      {{- end }}
      {{- range .extraArgs }}
      - {{ . | quote }}
      {{- end }}
    env:
      - name: POD_NAMESPACE
        valueFrom:
          fieldRef:
            fieldPath: metadata.namespace
      - name: POD_NAME # the name of the replica in the Lease
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
    {{- if not $hook }}
    ports:
      - {name: metrics, containerPort: 8080}
    livenessProbe:
      httpGet: {path: /healthz, port: 8081}
    readinessProbe:
      httpGet: {path: /readyz, port: 8081}
    {{- end }}
    resources:
      {{- toYaml .resources | nindent 6 }}
    securityContext:
      {{- include "loxilb.unprivileged" $root | nindent 6 }}
    {{- if $token }}
    volumeMounts:
      - {name: api, mountPath: /etc/loxilb/api, readOnly: true}
    {{- end }}
{{- if $token }}
securityContext:
  fsGroup: 65532
volumes:
  - name: api # without the private key of the balancers' certificate
    secret:
      secretName: {{ $root.Values.api.secretName }}
      defaultMode: 0440
      items:
        - {key: {{ .caKey }}, path: {{ .caKey }}}
        - {key: token, path: token}
{{- end }}
{{- end }}
{{- end }}

{{- define "loxilb.controllerImage" -}}
{{- with .Values.controller.image -}}
{{ .repository }}:{{ .tag | default ($.Chart.AppVersion | replace "+" "-") }}
{{- end }}
{{- end }}

{{- define "loxilb.unprivileged" -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "loxilb.controllerSelector" -}}
app.kubernetes.io/name: kube-loxilb
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "loxilb.controllerLabels" -}}
{{ include "loxilb.controllerSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "-" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The flag with the addresses of defaultPool, of both families. */ -}}
{{- define "loxilb.pools" -}}
--cidrPools={{ range $i, $a := . }}{{ if $i }},{{ end }}defaultPool={{ $a }}{{ end }}
{{- end }}
