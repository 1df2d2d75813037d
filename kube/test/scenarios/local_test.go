package scenarios

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
)

// TestEndpoints checks how Services follow their endpoints, and an upgrade. Its parts share a
// cluster, which has the custom resource of the existing controller.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	c := cluster(t, "bridge")
	resource, err := os.ReadFile("../../../deploy/helm/loxilb/files/crds/loxiurls.yaml")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, c, string(resource))
	install(t, c)
	t.Run("states", func(t *testing.T) { testEndpointStates(t, c) })
	kubectl(t, c, "delete", "services,deployments", "--all", "--timeout=60s")
	t.Run("rollouts", func(t *testing.T) { testRollouts(t, c) })
	kubectl(t, c, "delete", "services,deployments", "--all", "--timeout=60s")
	t.Run("upgrade", func(t *testing.T) { testUpgrade(t, c) })
}

// testEndpointStates checks two settings of Services: with the policy Local, nodes are probed at
// healthCheckNodePort while a pod moves from node to node; with publishNotReadyAddresses, pods that
// are not ready serve.
func testEndpointStates(t *testing.T, c *rig.Cluster) {
	t.Helper()
	outside := client{"outside", c.Outside.DialContext}

	apply(t, c, strings.Replace(sessionDeployment, "replicas: 2", "replicas: 1", 1))
	apply(t, c, localService)
	vip := net.JoinHostPort(ingress(t, c), "80")
	check := kubectl(t, c, "get", "service", "shop", "--output=jsonpath={.spec.healthCheckNodePort}")
	for range 2 {
		kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
		pod := onlyPod(t, c, "app=shop")
		on := pod.Node
		await.NoError(t, patience, func() error { return probesOnly(t, c, on, check) })
		await.NoError(t, patience, func() error { return allAnswered(t.Context(), outside, vip) })
		kubectl(t, c, "cordon", on)
		kubectl(t, c, "delete", "pod", pod.Name)
	}
	kubectl(t, c, "uncordon", "n1", "n2")

	apply(t, c, neverReady)
	address := func(name string) string { return net.JoinHostPort(ingressOf(t, c, name), "80") }
	published, unpublished := address("published"), address("unpublished")
	await.NoError(t, patience, func() error { return allAnswered(t.Context(), outside, published) })
	if n, err := get(t.Context(), outside, unpublished); n > 0 || err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("pods that are not ready have answered %d requests: %v", n, err)
	}
}

// onlyPod waits until a selector selects a single pod, with an address. A terminating pod counts
// until its containers have ended.
func onlyPod(t *testing.T, c *rig.Cluster, selector string) (pod rig.Pod) {
	t.Helper()
	await.NoError(t, patience, func() error {
		pods, err := c.Pods(selector)
		switch {
		case err != nil:
			return err
		case len(pods) != 1 || len(pods[0].Addresses) == 0:
			return fmt.Errorf("%s selects %+v, want one pod with an address", selector, pods)
		}
		pod = pods[0]
		return nil
	})
	return pod
}

// probesOnly returns an error unless the balancer on n1 probes only this node, at the health check
// of kube-proxy, with success.
func probesOnly(t *testing.T, c *rig.Cluster, node, check string) error {
	var list struct {
		Attr []struct {
			HostName, ProbeType, CurrState string
			ProbePort                      int
		}
	}
	text := request(t, c, http.MethodGet, "config/endpoint/all", nil)
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	address := c.Nodes[slices.IndexFunc(c.Nodes, func(n *rig.Node) bool { return n.Name == node })].Addresses()[0]
	if len(list.Attr) != 1 {
		return fmt.Errorf("%d endpoints are probed, want %s alone: %s", len(list.Attr), address, text)
	}
	if e := list.Attr[0]; e.HostName != address || e.ProbeType != "http" || fmt.Sprint(e.ProbePort) != check || e.CurrState != "ok" {
		return fmt.Errorf("the endpoint is %+v, want %s, http, port %s, ok", e, address, check)
	}
	return nil
}

const localService = `
apiVersion: v1
kind: Service
metadata:
  name: shop
  annotations: {loxilb.io/liveness: "yes", loxilb.io/probetimeout: "1"}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  selector: {app: shop}
  ports: [{port: 80, targetPort: 8080}]
`

const neverReady = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: never}
spec:
  selector: {matchLabels: {app: never}}
  template:
    metadata: {labels: {app: never}}
    spec:
      containers:
        - name: web
          image: localhost/web:1
          readinessProbe: {httpGet: {path: /, port: 9}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata:
  name: published
  annotations: {loxilb.io/usepodnetwork: "yes"}
spec:
  type: LoadBalancer
  publishNotReadyAddresses: true
  selector: {app: never}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata:
  name: unpublished
  annotations: {loxilb.io/usepodnetwork: "yes"}
spec:
  type: LoadBalancer
  selector: {app: never}
  ports: [{port: 80, targetPort: 8080}]
`
