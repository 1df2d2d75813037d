package scenarios

import (
	"fmt"
	"net"
	"testing"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
)

// testRollouts replaces all pods of a Deployment twice, under load on Services of each kind: with
// node ports and with pods as endpoints, with and without probes, and with the policy Local. No
// request fails. Since loxilb and kube-proxy connect to the same pods, nodes have the rule of
// docs/kubernetes.md.
func testRollouts(t *testing.T, c *rig.Cluster) {
	t.Helper()
	step := stopwatch(t)
	for _, n := range c.Nodes {
		if out, err := n.Run("nft", documentedRule(t)); err != nil {
			t.Fatal(err, out)
		}
	}
	apply(t, c, sessionDeployment)
	kinds := []struct{ name, policy, pods, liveness string }{
		{"ports", "Cluster", "no", "no"},
		{"ports-probed", "Cluster", "no", "yes"},
		{"pods", "Cluster", "yes", "no"},
		{"pods-probed", "Cluster", "yes", "yes"},
		{"local", "Local", "no", "no"},
		{"local-probed", "Local", "no", "yes"},
	}
	for _, k := range kinds {
		apply(t, c, fmt.Sprintf(rolledService, k.name, k.pods, k.liveness, k.policy))
	}
	kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
	outside := client{"outside", c.Outside.DialContext}
	loads := make([]*load, len(kinds))
	for i, k := range kinds {
		address := net.JoinHostPort(ingressOf(t, c, k.name), "80")
		await.NoError(t, patience, func() error { return allAnswered(t.Context(), outside, address) })
		loads[i] = startLoad(t.Context(), c, outside, address)
	}
	step("Services of all kinds are served")
	for range 2 {
		kubectl(t, c, "rollout", "restart", "deployment/shop")
		kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
		await.NoError(t, patience, func() error { return twoPods(c) })
		step("kubectl rollout restart: all pods are new, and the old ones gone")
	}
	for i, k := range kinds {
		total, failed, first := loads[i].stop()
		t.Logf("%-12s %d requests, %d pods, %d failed%s", k.name, total, loads[i].names(), failed, loads[i].report())
		if failed > 0 {
			t.Errorf("%s: %d of %d requests failed while pods were replaced, the first one: %v", k.name, failed, total, first)
		}
		if loads[i].names() < 4 {
			t.Errorf("%s: %d pods have answered, want at least the two old and the two new ones", k.name, loads[i].names())
		}
	}
	if t.Failed() {
		logOutages(t, loads...)
	}
}

// twoPods returns an error unless there are exactly two pods, so none is terminating.
func twoPods(c *rig.Cluster) error {
	pods, err := c.Pods("app=shop")
	if err == nil && len(pods) != 2 {
		err = fmt.Errorf("there are %d pods, want 2", len(pods))
	}
	return err
}

const rolledService = `
apiVersion: v1
kind: Service
metadata:
  name: %s
  annotations: {loxilb.io/usepodnetwork: "%s", loxilb.io/liveness: "%s", loxilb.io/probetimeout: "1"}
spec:
  type: LoadBalancer
  externalTrafficPolicy: %s
  selector: {app: shop}
  ports: [{port: 80, targetPort: 8080}]
`
