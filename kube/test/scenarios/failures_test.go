package scenarios

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
)

// TestFailures kills the leading controller, the daemon with the VIPs and its node, and cuts the
// controller off from the MASTER, under load. Each time the cluster converges: requests are
// answered, a changed Service is served, its address stays, and one node is MASTER. Only the death
// of a node and moves of VIPs may cost requests.
func TestFailures(t *testing.T) {
	t.Parallel()
	f := newFailures(t)
	for _, one := range []failureCase{
		{"controller killed", 0, func() error { return f.killProgram(f.leader(), "kube-loxilb") }, nil},
		{"daemon killed", 0, func() error { return f.killProgram(f.master(), "loxilb") }, nil},
		{"path to the MASTER cut", 2, f.hideMaster, f.showMaster}, // requests in flight when the VIP moves, and moves back
		{"node killed", unlimited, f.killMaster, f.startNodes},
	} {
		f.test(one)
	}
	f.end()
}

// TestAPIServerFails is like TestFailures for an apiserver that is killed, slow or suspended. The
// suspension may cost requests, since nodes seem dead afterwards.
func TestAPIServerFails(t *testing.T) {
	t.Parallel()
	f := newFailures(t)
	for _, one := range []failureCase{
		{"apiserver killed", 0, func() error { f.c.StopAPIServer(); return nil }, f.c.StartAPIServer},
		{"apiserver slow", 0, f.slowAPIServer, nil},
		{"apiserver stopped for a minute", unlimited, f.pauseAPIServer, f.resumeAPIServer},
	} {
		f.test(one)
	}
	f.end()
}

// unlimited allows any number of failed requests.
const unlimited = math.MaxInt

// failureCase is a failure, and how it ends.
type failureCase struct {
	what      string
	maxFailed int // requests that may fail
	begin     func() error
	end       func(context.Context) error // nil: the failure ends by itself
}

// newFailures starts a cluster with two replicas of the controller and a Service.
func newFailures(t *testing.T) *failures {
	t.Helper()
	c := cluster(t, "bridge")
	install(t, c, "controller.replicas=2")
	if nodes := kubectl(t, c, "--namespace=kube-system", "get", "pods", "--selector=app.kubernetes.io/name=kube-loxilb",
		"--output=jsonpath={.items[*].spec.nodeName}"); nodes != "n1 n2" && nodes != "n2 n1" {
		t.Errorf("the replicas of the controller are on %q", nodes)
	}
	return newShop(t, c)
}

// newShop creates the Service shop in a cluster, and waits until it is served.
func newShop(t *testing.T, c *rig.Cluster) *failures {
	t.Helper()
	apply(t, c, sessionDeployment)
	kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
	kubectl(t, c, "expose", "deployment", "shop", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	f := &failures{t: t, c: c, vip: ingress(t, c), outside: client{"outside", c.Outside.DialContext}, port: 80}
	await.NoError(t, patience, func() error { return allAnswered(t.Context(), f.outside, f.address()) })
	return f
}

// test begins a failure under load, ends it, and checks that the cluster converges.
func (f *failures) test(c failureCase) {
	t := f.t
	t.Helper()
	load := startLoad(t.Context(), f.c, f.outside, f.address())
	step := stopwatch(t)
	if err := c.begin(); err != nil {
		t.Fatal(c.what, err)
	}
	await.NoError(t, patience, func() error { return allAnswered(t.Context(), f.outside, f.address()) })
	step(c.what + ": 20 of 20 requests are answered")
	if c.end != nil {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := c.end(ctx)
		cancel()
		if err != nil {
			t.Fatal(c.what, err)
		}
	}
	f.ready()
	f.oneMaster()
	load.check(t, c.what, c.maxFailed)
	f.change()
	step(c.what + ": a changed Service is served")
}

// end deletes the Service.
func (f *failures) end() {
	f.t.Helper()
	kubectl(f.t, f.c, "delete", "service", "shop")
	await.True(f.t, patience, "the VIP is gone", func() bool { return probeARP(f.c.LAN.Run, f.vip) != nil })
}

// Times of failures of the apiserver.
const (
	apiDelay = 2 * time.Second
	apiWork  = time.Second / 2
	apiPause = time.Minute
)

// failures is a cluster with a Service for tests of failures.
type failures struct {
	t       *testing.T
	c       *rig.Cluster
	vip     string
	port    int
	outside client
	hidden  *rig.Node // node whose API is not reachable
}

func (f *failures) address() string { return net.JoinHostPort(f.vip, fmt.Sprint(f.port)) }

// slowAPIServer delays answers of the apiserver by up to two seconds, and waits until a new Service
// is served and deleted.
func (f *failures) slowAPIServer() error {
	defer f.c.SlowAPIServer(apiWork, apiDelay)()
	began := time.Now()
	kubectl(f.t, f.c, "expose", "deployment", "shop", "--name=late", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	await.NoError(f.t, patience, func() error {
		vip, err := f.c.Kubectl("get", "service", "late", "--output=jsonpath={.status.loadBalancer.ingress[0].ip}")
		if err != nil || vip == "" {
			return fmt.Errorf("the Service has address %q (%w)", vip, err)
		}
		return allAnswered(f.t.Context(), f.outside, net.JoinHostPort(vip, "80"))
	})
	f.t.Logf("a new Service is served after %v, as the apiserver's answers take up to %v", time.Since(began).Round(time.Millisecond), apiDelay)
	kubectl(f.t, f.c, "delete", "service", "late", "--timeout=60s")
	return nil
}

// pauseAPIServer suspends the apiserver for a minute, in which the leader loses its Lease.
func (f *failures) pauseAPIServer() error {
	f.t.Logf("before the stop, nodes became ready at %s; MASTER is %q", f.transitions(), f.masters())
	f.c.PauseAPIServer()
	time.Sleep(apiPause)
	return nil
}

// resumeAPIServer resumes the apiserver. The controller manager had no news of nodes for a minute,
// and may take them for dead. Then their pods are not ready for a moment, and kube-proxy refuses
// connections.
func (f *failures) resumeAPIServer(ctx context.Context) error {
	if err := f.c.ResumeAPIServer(ctx); err != nil {
		return err
	}
	f.ready()
	f.t.Logf("after the stop, nodes became ready at %s", f.transitions())
	return nil
}

// transitions returns when nodes became ready.
func (f *failures) transitions() string {
	return kubectl(f.t, f.c, "get", "nodes", `--output=jsonpath={.items[*].status.conditions[?(@.type=="Ready")].lastTransitionTime}`)
}

// ready waits until all pods of loxilb are ready.
func (f *failures) ready() {
	f.t.Helper()
	for _, workload := range []string{"daemonset/loxilb", "deployment/loxilb-controller"} {
		kubectl(f.t, f.c, "--namespace=kube-system", "rollout", "status", workload, "--timeout=120s")
	}
}

// change changes the port of the Service, and waits until it is served at the same address.
func (f *failures) change() {
	f.t.Helper()
	f.port++
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/ports/0/port","value":%d}]`, f.port)
	await.NoError(f.t, patience, func() error {
		_, err := f.c.Kubectl("patch", "service", "shop", "--type=json", "--patch="+patch)
		return err
	})
	await.NoError(f.t, patience, func() error { return allAnswered(f.t.Context(), f.outside, f.address()) })
	if now := ingress(f.t, f.c); now != f.vip {
		f.t.Errorf("the address was %s and is %s", f.vip, now)
	}
}

// leader returns the node of the leading controller.
func (f *failures) leader() *rig.Node {
	f.t.Helper()
	holder := kubectl(f.t, f.c, "--namespace=kube-system", "get", "lease", "kube-loxilb-llb", "--output=jsonpath={.spec.holderIdentity}")
	pod, _, _ := strings.Cut(holder, "@")
	return f.nodeOf(kubectl(f.t, f.c, "--namespace=kube-system", "get", "pod", pod, "--output=jsonpath={.spec.nodeName}"))
}

// master returns the node that is MASTER.
func (f *failures) master() (node *rig.Node) {
	f.t.Helper()
	await.NoError(f.t, patience, func() error {
		masters := f.masters()
		if len(masters) == 0 {
			return errors.New("no node is MASTER")
		}
		node = f.nodeOf(masters[0])
		return nil
	})
	return node
}

// masters returns the names of the nodes whose daemon is MASTER, without those in except.
func (f *failures) masters(except ...*rig.Node) (nodes []string) {
	for _, n := range f.c.Nodes {
		if !slices.Contains(except, n) && isMaster(f.t.Context(), n) {
			nodes = append(nodes, n.Name)
		}
	}
	return nodes
}

// isMaster reports whether the daemon of a node is MASTER. The request comes from the node itself,
// since others might not reach it.
func isMaster(ctx context.Context, n *rig.Node) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Addresses()[0]+":11111/netlox/v1/config/cistate/all", nil)
	if err != nil {
		return false
	}
	answer, err := (&http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	roles, err := io.ReadAll(answer.Body)
	return err == nil && strings.Contains(string(roles), "MASTER")
}

// askTimeout is how long a daemon may take for an answer.
const askTimeout = 5 * time.Second

// hideMaster blocks the API of the MASTER, and waits until there is a second one: the controller
// cannot notify the first.
func (f *failures) hideMaster() error {
	f.hidden = f.master()
	rules := "table inet hide { chain input { type filter hook input priority -200; iifname != lo tcp dport 11111 drop; }; }"
	if out, err := f.hidden.Run("nft", rules); err != nil {
		return fmt.Errorf("hide the API of %s: %w: %s", f.hidden.Name, err, out)
	}
	began := time.Now()
	await.NoError(f.t, patience, func() error {
		if n := len(f.masters()); n != 2 {
			return fmt.Errorf("%d nodes are MASTER, want 2", n)
		}
		return nil
	})
	f.t.Logf("there is a second MASTER after %v", time.Since(began).Round(time.Millisecond))
	return nil
}

// showMaster unblocks the API of the hidden MASTER, and waits until only one is left.
func (f *failures) showMaster(context.Context) error {
	out, err := f.hidden.Run("nft", "delete table inet hide")
	if err != nil {
		return fmt.Errorf("show the API of %s: %w: %s", f.hidden.Name, err, out)
	}
	began := time.Now()
	f.oneMaster()
	f.t.Logf("there is one MASTER after %v", time.Since(began).Round(time.Millisecond))
	return nil
}

// oneMaster waits until one node is MASTER.
func (f *failures) oneMaster() {
	f.t.Helper()
	await.NoError(f.t, patience, func() error {
		if masters := f.masters(); len(masters) != 1 {
			return fmt.Errorf("MASTER are %q", masters)
		}
		return nil
	})
}

func (f *failures) nodeOf(name string) *rig.Node {
	f.t.Helper()
	for _, n := range f.c.Nodes {
		if n.Name == name {
			return n
		}
	}
	f.t.Fatalf("there is no node %q", name)
	return nil
}

// killProgram kills a program of a node's pods as a crash would. The node has its own PID
// namespace, so other nodes are not affected.
func (f *failures) killProgram(n *rig.Node, name string) error {
	out, err := n.Run("sh", "-c", "kill -KILL $(pidof "+name+")")
	if err != nil {
		return fmt.Errorf("kill %s on %s: %w: %s", name, n.Name, err, out)
	}
	return nil
}

// killNode ends a node as a power failure would: it no longer answers.
func (f *failures) killNode(n *rig.Node) error {
	if err := n.SetConnected(false); err != nil {
		return err
	}
	n.Kill()
	return nil
}

// killMaster kills the node that is MASTER. A host of the LAN that has its MAC address, and sends
// nothing, must learn the other node's address from gratuitous ARP and unsolicited neighbor
// advertisements.
func (f *failures) killMaster() error {
	f.t.Helper()
	apply(f.t, f.c, serviceOfIPv6)
	vips := []string{f.vip, ingressOf(f.t, f.c, "shop6")}
	dead := f.master()
	other := f.c.Nodes[0]
	if other == dead {
		other = f.c.Nodes[1]
	}
	before, err1 := dead.MAC("eth0")
	after, err2 := other.MAC("eth0")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// The kernel deletes neighbors that were not used for this time, if all namespaces together
	// have many.
	if out, err := f.c.LAN.Run("sysctl", "-qw", "net.ipv4.neigh.eth0.gc_stale_time=3600", "net.ipv6.neigh.eth0.gc_stale_time=3600"); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, vip := range vips {
		if out, err := f.c.LAN.Run("ip", "neighbour", "replace", vip, "lladdr", before.String(), "nud", "stale", "dev", "eth0"); err != nil {
			return fmt.Errorf("neighbor %s: %w: %s", vip, err, out)
		}
	}
	if err := f.killNode(dead); err != nil {
		return err
	}
	began := time.Now()
	for _, vip := range vips {
		await.NoError(f.t, patience, func() error {
			out, err := f.c.LAN.Run("ip", "neighbour", "show", "to", vip)
			if err == nil && !strings.Contains(out, after.String()) {
				err = fmt.Errorf("the neighbor is %q, want MAC address %s of %s", out, after, other.Name)
			}
			return err
		})
		f.t.Logf("a silent host has the MAC address of %s for %s after %v", other.Name, vip, time.Since(began).Round(time.Millisecond))
	}
	kubectl(f.t, f.c, "delete", "service", "shop6", "--wait=false")
	return nil
}

const serviceOfIPv6 = `
apiVersion: v1
kind: Service
metadata: {name: shop6}
spec:
  type: LoadBalancer
  ipFamilies: [IPv6]
  selector: {app: shop}
  ports: [{port: 80, targetPort: 8080}]
`

// startNodes starts killed nodes.
func (f *failures) startNodes(ctx context.Context) (err error) {
	for _, n := range f.c.Nodes {
		if !n.IsRunning() {
			err = errors.Join(err, n.SetConnected(true), n.Start(ctx))
		}
	}
	return err
}
