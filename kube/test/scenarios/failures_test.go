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

// TestFailures kills the leading controller, the daemon with the VIPs, and its node, and keeps the
// controller from the MASTER, under load. Each time the cluster converges: requests are answered, a
// changed Service is served, its address stays, and one node is MASTER. Only the death of a node
// may cost requests.
func TestFailures(t *testing.T) {
	t.Parallel()
	f := newFailures(t)
	for _, one := range []failure{
		{"controller killed", 0, func() error { return f.killProgram(f.leader(), "kube-loxilb") }, nil},
		{"daemon killed", 0, func() error { return f.killProgram(f.master(), "loxilb") }, nil},
		{"path to the MASTER cut", 2, f.hideMaster, f.showMaster}, // those in flight when the VIP moves, and moves back
		{"node killed", unlimited, f.killMaster, f.startNodes},
	} {
		f.survive(one)
	}
	f.end()
}

// TestAPIServerFails kills the apiserver, makes it slow and stops it, like TestFailures. A stop may
// cost requests: nodes look dead afterwards.
func TestAPIServerFails(t *testing.T) {
	t.Parallel()
	f := newFailures(t)
	for _, one := range []failure{
		{"apiserver killed", 0, func() error { f.c.StopAPIServer(); return nil }, f.c.StartAPIServer},
		{"apiserver slow", 0, f.slowAPIServer, nil},
		{"apiserver stopped for a minute", unlimited, f.pauseAPIServer, f.resumeAPIServer},
	} {
		f.survive(one)
	}
	f.end()
}

// unlimited is the number of requests that the death of a node may cost.
const unlimited = math.MaxInt

// failure is something that dies, and how it returns.
type failure struct {
	what    string
	costs   int // requests, at most
	kill    func() error
	recover func(context.Context) error
}

// newFailures starts a cluster with two replicas of the controller, and a Service.
func newFailures(t *testing.T) *failures {
	t.Helper()
	c := cluster(t, "bridge")
	install(t, c, "controller.replicas=2")
	if nodes := kubectl(t, c, "--namespace=kube-system", "get", "pods", "--selector=app.kubernetes.io/name=kube-loxilb",
		"--output=jsonpath={.items[*].spec.nodeName}"); nodes != "n1 n2" && nodes != "n2 n1" {
		t.Errorf("the replicas of the controller are on %q", nodes)
	}
	return shopUnderFailures(t, c)
}

// shopUnderFailures starts a Service in a cluster, and waits until it is served.
func shopUnderFailures(t *testing.T, c *rig.Cluster) *failures {
	t.Helper()
	apply(t, c, sessionDeployment)
	kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
	kubectl(t, c, "expose", "deployment", "shop", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	f := &failures{t: t, c: c, vip: ingress(t, c), outside: client{"outside", c.Outside.DialContext}, port: 80}
	await.NoError(t, patience, func() error { return all(t.Context(), f.outside, f.address()) })
	return f
}

// survive has something die under load, and checks that the cluster converges.
func (f *failures) survive(one failure) {
	t := f.t
	t.Helper()
	load := startLoad(t.Context(), f.c, f.outside, f.address())
	step := stopwatch(t)
	if err := one.kill(); err != nil {
		t.Fatal(one.what, err)
	}
	await.NoError(t, patience, func() error { return all(t.Context(), f.outside, f.address()) })
	step(one.what + ": 20 of 20 requests are answered")
	if one.recover != nil {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := one.recover(ctx)
		cancel()
		if err != nil {
			t.Fatal(one.what, err)
		}
	}
	f.ready()
	f.oneMaster()
	load.check(t, one.what, one.costs)
	f.change()
	step(one.what + ": a changed Service is served")
}

// end deletes the Service.
func (f *failures) end() {
	f.t.Helper()
	kubectl(f.t, f.c, "delete", "service", "shop")
	await.True(f.t, patience, "the VIP is gone", func() bool { return probeARP(f.c.LAN.Run, f.vip) != nil })
}

// How the apiserver is disturbed.
const (
	apiDelay = 2 * time.Second
	apiWork  = time.Second / 2
	apiPause = time.Minute
)

// failures is a cluster where things die.
type failures struct {
	t       *testing.T
	c       *rig.Cluster
	vip     string
	port    int
	outside client
	hidden  *rig.Node // whose API nobody reaches
}

func (f *failures) address() string { return net.JoinHostPort(f.vip, fmt.Sprint(f.port)) }

// slowAPIServer has answers of the apiserver take up to two seconds, and waits until a new Service
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
		return all(f.t.Context(), f.outside, net.JoinHostPort(vip, "80"))
	})
	f.t.Logf("a new Service is served after %v, as the apiserver's answers take up to %v", time.Since(began).Round(time.Millisecond), apiDelay)
	kubectl(f.t, f.c, "delete", "service", "late", "--timeout=60s")
	return nil
}

// pauseAPIServer has the apiserver do nothing for a minute, in which the leader loses its Lease.
func (f *failures) pauseAPIServer() error {
	f.t.Logf("before the stop, nodes became ready at %s; MASTER is %q", f.transitions(), f.masters())
	f.c.PauseAPIServer()
	time.Sleep(apiPause)
	return nil
}

// resumeAPIServer continues the apiserver. The controller manager, which heard nothing of nodes for
// a minute, may take them for dead then. Their pods are not ready for a moment, and kube-proxy
// refuses.
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

// ready waits until all pods of loxilb run again.
func (f *failures) ready() {
	f.t.Helper()
	for _, workload := range []string{"daemonset/loxilb", "deployment/loxilb-controller"} {
		kubectl(f.t, f.c, "--namespace=kube-system", "rollout", "status", workload, "--timeout=120s")
	}
}

// change changes the Service's port, and waits until it is served at the same address.
func (f *failures) change() {
	f.t.Helper()
	f.port++
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/ports/0/port","value":%d}]`, f.port)
	await.NoError(f.t, patience, func() error {
		_, err := f.c.Kubectl("patch", "service", "shop", "--type=json", "--patch="+patch)
		return err
	})
	await.NoError(f.t, patience, func() error { return all(f.t.Context(), f.outside, f.address()) })
	if now := ingress(f.t, f.c); now != f.vip {
		f.t.Errorf("the address was %s and is %s", f.vip, now)
	}
}

// leader returns the node of the controller that works.
func (f *failures) leader() *rig.Node {
	f.t.Helper()
	holder := kubectl(f.t, f.c, "--namespace=kube-system", "get", "lease", "kube-loxilb-llb", "--output=jsonpath={.spec.holderIdentity}")
	pod, _, _ := strings.Cut(holder, "@")
	return f.nodeOf(kubectl(f.t, f.c, "--namespace=kube-system", "get", "pod", pod, "--output=jsonpath={.spec.nodeName}"))
}

// master returns the node that has the VIPs.
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

// masters returns the names of the nodes that believe to have the VIPs, without asking some.
func (f *failures) masters(unasked ...*rig.Node) (nodes []string) {
	for _, n := range f.c.Nodes {
		if !slices.Contains(unasked, n) && isMaster(f.t.Context(), n) {
			nodes = append(nodes, n.Name)
		}
	}
	return nodes
}

// isMaster asks the daemon of a node, on that node: others may not reach it.
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

// hideMaster lets nobody reach the API of the MASTER, and waits until there is a second one: the
// first cannot be told.
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

// killProgram kills a program of a node's pods as a crash would. Only the node's own processes are
// in sight there.
func (f *failures) killProgram(n *rig.Node, name string) error {
	out, err := n.Run("sh", "-c", "kill -KILL $(pidof "+name+")")
	if err != nil {
		return fmt.Errorf("kill %s on %s: %w: %s", name, n.Name, err, out)
	}
	return nil
}

// killNode cuts a node's power: it no longer answers anything.
func (f *failures) killNode(n *rig.Node) error {
	if err := n.Connect(false); err != nil {
		return err
	}
	n.Kill()
	return nil
}

// killMaster kills the node with the VIPs. A host of the LAN that knows its MAC address, and sends
// nothing, learns that of the other node by its announcements: gratuitous ARP, and unsolicited
// neighbor advertisements.
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
	// the kernel deletes what a host has not used for this long, if all namespaces together have
	// many neighbors
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

// startNodes starts the nodes that were killed.
func (f *failures) startNodes(ctx context.Context) (err error) {
	for _, n := range f.c.Nodes {
		if !n.Runs() {
			err = errors.Join(err, n.Connect(true), n.Start(ctx))
		}
	}
	return err
}
