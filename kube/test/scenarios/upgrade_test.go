package scenarios

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
)

// testUpgrade checks that helm upgrade replaces balancers and controller without a failed request,
// a broken connection or a change of address, and does not adopt the existing controller's custom
// resource.
func testUpgrade(t *testing.T, c *rig.Cluster) {
	t.Helper()
	apply(t, c, sessionDeployment)
	kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
	kubectl(t, c, "expose", "deployment", "shop", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	vip := ingress(t, c)
	address := net.JoinHostPort(vip, "80")
	outside := client{"outside", c.Outside.DialContext}
	await.NoError(t, patience, func() error { return allAnswered(t.Context(), outside, address) })
	held := hold(t, outside, address)
	load := startLoad(t.Context(), c, outside, address)

	before := kubectl(t, c, "--namespace=kube-system", "get", "pods", "--selector=app.kubernetes.io/instance=loxilb", "--output=jsonpath={.items[*].metadata.name}")
	step := stopwatch(t)
	helm(t, c, "upgrade", "loxilb", "../../../deploy/helm/loxilb", "--namespace=kube-system", "--reset-then-reuse-values",
		"--set=logLevel=debug", "--set=controller.extraArgs={--log-level=debug}")
	kubectl(t, c, "--namespace=kube-system", "rollout", "status", "daemonset/loxilb", "--timeout=120s")
	kubectl(t, c, "--namespace=kube-system", "rollout", "status", "deployment/loxilb-controller", "--timeout=120s")
	step("helm upgrade: all pods are new")
	helm(t, c, "test", "loxilb", "--namespace=kube-system")
	step("helm test")
	if after := kubectl(t, c, "--namespace=kube-system", "get", "pods", "--selector=app.kubernetes.io/instance=loxilb",
		"--output=jsonpath={.items[*].metadata.name}"); after == before {
		t.Errorf("pods are still %s", after)
	}
	if err := held.request(); err != nil {
		t.Errorf("the held connection: %v", err)
	}
	load.check(t, "helm upgrade", 0)
	if owner := kubectl(t, c, "get", "customresourcedefinition", "loxiurls.loxiurl.loxilb.io",
		"--output=jsonpath={.metadata.labels}{.metadata.annotations.meta\\.helm\\.sh/release-name}"); owner != "" {
		t.Errorf("the LoxiURLs of the existing controller belong to %s", owner)
	}
	if now := ingress(t, c); now != vip {
		t.Errorf("the address was %s and is %s", vip, now)
	}
}

// heldConnection is a connection for several requests.
type heldConnection struct {
	net.Conn
	answers *bufio.Reader
}

// hold opens a connection, and makes a request on it.
func hold(t testing.TB, c client, address string) *heldConnection {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := c.dial(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	h := &heldConnection{conn, bufio.NewReader(conn)}
	if err := h.request(); err != nil {
		t.Fatal(err)
	}
	return h
}

// request makes a request on the connection.
func (h *heldConnection) request() error {
	if err := h.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(h, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(h.answers, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.ReadAll(answer.Body)
	return err
}
