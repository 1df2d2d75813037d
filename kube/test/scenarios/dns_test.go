package scenarios

import (
	"testing"

	"loxilb/kube/test/rig"
)

// runDNS starts CoreDNS, which resolves names of Services for pods.
func runDNS(t testing.TB, c *rig.Cluster) {
	t.Helper()
	apply(t, c, coreDNS)
	kubectl(t, c, "--namespace=kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
}

const coreDNS = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: coredns}
rules:
  - {apiGroups: [""], resources: [services, namespaces], verbs: [list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: coredns}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
      errors
      health
      ready
      kubernetes cluster.local
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      nodeSelector: {kubernetes.io/hostname: n1}
      containers:
        - name: coredns
          image: localhost/coredns:1
          args: [-conf, /etc/coredns/Corefile]
          readinessProbe: {httpGet: {path: /ready, port: 8181}, periodSeconds: 1}
          volumeMounts: [{name: config, mountPath: /etc/coredns}]
      volumes: [{name: config, configMap: {name: coredns}}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: 10.96.0.10
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`
