{{- /* The rights of a container that attaches or detaches programs. */ -}}
{{- define "loxilb.daemonSecurity" -}}
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsUser: 0 # Kubernetes gives capabilities only to root
runAsGroup: 0
capabilities: # docs/container.md says why each
  drop: [ALL]
  add: [NET_ADMIN, NET_BIND_SERVICE, NET_RAW, SYS_ADMIN]
seccompProfile:
  type: RuntimeDefault
appArmorProfile: # the runtime's profile forbids net.*.conf.lo.forwarding
  type: Unconfined
{{- end }}

{{- /* The nodes that run the daemon, and their network. */ -}}
{{- define "loxilb.daemonPlacement" -}}
hostNetwork: true
dnsPolicy: Default # the node's: the cluster's DNS may depend on what this balances
priorityClassName: {{ .Values.priorityClassName }}
automountServiceAccountToken: false # the daemon does not use Kubernetes' API
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
