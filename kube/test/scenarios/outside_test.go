package scenarios

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
	"loxilb/test/netnstest"
)

// testOutside checks two balancers outside of the cluster, with TLS and a token. At first, their
// services and roles, and the status of shop, are those that the existing controller leaves. Our
// controller takes over under load: the VIP stays, no request fails, and a held connection
// survives. Then the MASTER dies, and the other balancer answers. After helm uninstall it has no
// services.
func testOutside(t *testing.T, c *rig.Cluster) {
	t.Helper()
	const vip = "10.77.0.133"
	address := net.JoinHostPort(vip, "80")
	step := stopwatch(t)
	balancers := startBalancers(t, c)
	step("two balancers outside of the cluster are ready")
	leaveAsExisting(t, c, balancers, vip)
	outside := client{"outside", c.Outside.DialContext}
	await.NoError(t, patience, func() error { return allAnswered(t.Context(), outside, address) })
	step("20 of 20 requests are answered, as the existing controller has configured it")

	held := hold(t, outside, address)
	load := startLoad(t.Context(), c, outside, address)
	installOutside(t, c, balancers)
	kubectl(t, c, "wait", "--for=condition=loxilb.io/Programmed", "service/shop", "--timeout=120s")
	for _, b := range balancers {
		await.NoError(t, patience, func() error { return b.isTakenOver(t) })
	}
	step("helm install: our controller has taken the Service over")
	if status := kubectl(t, c, "get", "service", "shop", "--output=jsonpath={.status.loadBalancer.ingress[*]['ip','hostname']}"); status != vip {
		t.Errorf("the Service has addresses %q, want %s", status, vip)
	}
	if out := kubectl(t, c, "--namespace=kube-system", "get", "daemonsets,endpointslices", "--output=name"); strings.Contains(out, "loxilb") {
		t.Errorf("the chart installs on nodes, too: %s", out)
	}
	if err := held.request(); err != nil {
		t.Errorf("the held connection: %v", err)
	}
	load.check(t, "another controller takes over", 0)

	balancers[0].daemon.Kill()
	if out, err := balancers[0].host.Run("ip", "link", "set", "eth0", "down"); err != nil {
		t.Fatal(err, out)
	}
	await.NoError(t, patience, func() error { return allAnswered(t.Context(), outside, address) })
	step("the MASTER is dead: the other balancer answers")

	shell(t, c, removal(t))
	if list := balancers[1].services(t); strings.Contains(list, "shop") {
		t.Errorf("the balancer still has %s", list)
	}
	if out := kubectl(t, c, "get", "service", "shop", "--output=jsonpath={.metadata.finalizers}{.status}"); out != `{"loadBalancer":{}}` {
		t.Errorf("the Service has finalizers and status %s", out)
	}
	step("helm uninstall: nothing is left")
}

// outsideToken is the token of balancers outside of the cluster.
const outsideToken = "outside-token"

// outsideBalancer is a balancer outside of the cluster.
type outsideBalancer struct {
	url    string
	host   *netnstest.Host
	daemon *netnstest.Daemon
	client *http.Client
}

// startBalancers starts two balancers in the nodes' network, whose API needs TLS and a token, and
// creates the Secret for the controller.
func startBalancers(t *testing.T, c *rig.Cluster) (list []*outsideBalancer) {
	t.Helper()
	bin, dir := artifact(t, "NETTEST_BIN"), t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, authority := file("token", []byte(outsideToken)), ""
	for i, address := range []string{"10.77.0.31", "10.77.0.32"} {
		host, err := c.AddHost(fmt.Sprint("b", i+1), address)
		if err != nil {
			t.Fatal(err)
		}
		cert, key, ca, err := c.Certificate(netip.MustParseAddr(address))
		if err != nil {
			t.Fatal(err)
		}
		authority = file("ca.crt", ca)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		b := &outsideBalancer{url: "https://" + net.JoinHostPort(address, "8091"), host: host, client: &http.Client{Transport: &http.Transport{
			DialContext: c.LAN.DialContext, TLSClientConfig: &tls.Config{RootCAs: pool},
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		b.daemon, err = host.StartDaemon(ctx, netnstest.DaemonOptions{Bin: bin, Args: []string{
			"--tls", "--tls-certificate", file(host.Name+".crt", cert), "--tls-key", file(host.Name+".key", key),
			"--manualtoken", "--manualtokenvalue", token,
		}})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	kubectl(t, c, "--namespace=kube-system", "create", "secret", "generic", "loxilb-api", "--from-file="+authority, "--from-file="+token)
	return list
}

// installOutside installs the chart with only the controller.
func installOutside(t *testing.T, c *rig.Cluster, balancers []*outsideBalancer) {
	t.Helper()
	var urls []string
	for _, b := range balancers {
		urls = append(urls, b.url)
	}
	helm(t, c, "install", "loxilb", "../../../deploy/helm/loxilb", "--namespace=kube-system", "--set=api.access=token",
		"--set=controller.enabled=true", "--set-string=controller.image.tag=1", "--set=controller.defaultClass=true", "--set=controller.caKey=ca.crt",
		"--set=controller.loxiURL={"+strings.Join(urls, ",")+"}", "--set=controller.addresses={10.77.0.128/28}")
	kubectl(t, c, "--namespace=kube-system", "rollout", "status", "deployment/loxilb-controller", "--timeout=120s")
}

// leaveAsExisting sets services and roles of balancers, and the status of shop, like the existing
// controller: the first balancer is MASTER, and the status has a host name.
func leaveAsExisting(t *testing.T, c *rig.Cluster, balancers []*outsideBalancer, vip string) {
	t.Helper()
	type object = map[string]any
	port := kubectl(t, c, "get", "service", "shop", "--output=jsonpath={.spec.ports[0].nodePort}")
	var endpoints []object
	for _, n := range c.Nodes {
		endpoints = append(endpoints, object{"endpointIP": n.Addresses()[0], "targetPort": json.Number(port), "weight": 1})
	}
	for i, b := range balancers {
		b.request(t, http.MethodPost, "config/cistate", object{"instance": "llb-inst0", "state": []string{"MASTER", "BACKUP"}[i], "vip": "0.0.0.0"})
		b.request(t, http.MethodPost, "config/loadbalancer", object{
			"serviceArguments": object{
				"externalIP": vip, "port": 80, "protocol": "tcp", "mode": 1, "name": "default_shop:llb-inst0", "managed": true, "inactiveTimeOut": 1800,
			},
			"endpoints": endpoints,
		})
	}
	kubectl(t, c, "patch", "service", "shop", "--subresource=status", "--type=merge",
		`--patch={"status":{"loadBalancer":{"ingress":[{"hostname":"llb-`+vip+`"}]}}}`)
}

// services returns all services of the balancer.
func (b *outsideBalancer) services(t *testing.T) string {
	t.Helper()
	return b.request(t, http.MethodGet, "config/objects?kind=Loadbalancer&managed=true", nil)
}

// isTakenOver returns an error unless our controller owns the balancer's service.
func (b *outsideBalancer) isTakenOver(t *testing.T) error {
	if list := b.services(t); strings.Count(list, "default_shop:llb-inst0") != 1 || !strings.Contains(list, `"kube-`) {
		return fmt.Errorf("%s has services %s", b.url, list)
	}
	return nil
}

// request makes a request to the balancer's API.
func (b *outsideBalancer) request(t *testing.T, method, path string, body any) string {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+"/netlox/v1/"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", outsideToken)
	answer, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	out, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		t.Fatalf("%s %s%s: %s %s %v", method, b.url, path, answer.Status, out, err)
	}
	return string(out)
}
