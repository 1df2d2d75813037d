{{- /* What a container needs to have the kernel balance, or to end that. */ -}}
{{- define "loxilb.daemonSecurity" -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsUser: 0 # Kubernetes gives capabilities to nobody else
runAsGroup: 0
capabilities: # docs/container.md says why each
  drop: [ALL]
  add: [NET_ADMIN, NET_BIND_SERVICE, NET_RAW, SYS_ADMIN]
seccompProfile:
  type: RuntimeDefault
appArmorProfile: # that of the runtime forbids net.*.conf.lo.forwarding
  type: Unconfined
{{- end }}

{{- /* Which nodes have a daemon. */ -}}
{{- define "loxilb.daemonPlacement" -}}
hostNetwork: true
dnsPolicy: Default # the node's: that of the cluster may be behind what this balances
priorityClassName: {{ .Values.priorityClassName }}
automountServiceAccountToken: false # it asks nothing of Kubernetes
enableServiceLinks: false
terminationGracePeriodSeconds: 30
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
