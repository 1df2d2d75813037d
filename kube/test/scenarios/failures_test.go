package scenarios

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"loxilb/kube/test/rig"
	"loxilb/test/await"
)

// TestFailures kills the apiserver, the leading controller, the daemon with the VIPs, and its node,
// and keeps the controller from the MASTER, under load. Each time the cluster converges: requests
// are answered, a changed Service is served, its address stays, and one node is MASTER. Only the
// death of a node may cost requests.
func TestFailures(t *testing.T) {
	t.Parallel()
	c := cluster(t, "bridge")
	install(t, c, "controller.replicas=2")
	if nodes := kubectl(t, c, "--namespace=kube-system", "get", "pods", "--selector=app.kubernetes.io/name=kube-loxilb", "--output=jsonpath={.items[*].spec.nodeName}"); nodes != "n1 n2" && nodes != "n2 n1" {
		t.Errorf("the replicas of the controller are on %q", nodes)
	}
	apply(t, c, sessionDeployment)
	kubectl(t, c, "rollout", "status", "deployment/shop", "--timeout=120s")
	kubectl(t, c, "expose", "deployment", "shop", "--type=LoadBalancer", "--port=80", "--target-port=8080")
	f := failures{t: t, c: c, vip: ingress(t, c), outside: client{"outside", c.Outside.DialContext}, port: 80}
	await.NoError(t, patience, func() error { return all(t.Context(), f.outside, f.address()) })

	for _, kill := range []struct {
		what    string
		costs   bool // requests
		kill    func() error
		recover func(context.Context) error
	}{
		{"apiserver", false, func() error { c.StopAPIServer(); return nil }, c.StartAPIServer},
		{"controller", false, func() error { return f.killProgram(f.leader(), "kube-loxilb") }, nil},
		{"daemon", false, func() error { return f.killProgram(f.master(), "loxilb") }, nil},
		{"way to the MASTER", false, f.hideMaster, f.showMaster},
		{"node", true, func() error { return f.killNode(f.master()) }, f.startNodes},
	} {
		load := startLoad(t.Context(), f.outside, f.address())
		step := stopwatch(t)
		if err := kill.kill(); err != nil {
			t.Fatal(kill.what, err)
		}
		await.NoError(t, patience, func() error { return all(t.Context(), f.outside, f.address()) })
		step(kill.what + " killed: 20 of 20 requests are answered")
		if kill.recover != nil {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			err := kill.recover(ctx)
			cancel()
			if err != nil {
				t.Fatal(kill.what, err)
			}
		}
		f.ready()
		f.oneMaster()
		total, failed, first := load.stop()
		t.Logf("%s killed: %d of %d requests failed%s", kill.what, failed, total, load.report())
		if failed > 0 && !kill.costs {
			t.Errorf("%s killed: %d of %d requests failed, the first one: %v", kill.what, failed, total, first)
		}
		f.change()
		step(kill.what + ": a changed Service is served")
	}
	kubectl(t, c, "delete", "service", "shop")
	await.True(t, patience, "the VIP is gone", func() bool { return probeARP(c.LAN.Run, f.vip) != nil })
}

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
	pod, _, _ := strings.Cut(holder, "_")
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

// masters returns the names of the nodes that believe to have the VIPs.
func (f *failures) masters() (nodes []string) {
	pods, err := f.c.Kubectl("--namespace=kube-system", "get", "pods", "--selector=app.kubernetes.io/name=loxilb",
		"--output=jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{\"\\n\"}{end}")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(pods) {
		pod, on, _ := strings.Cut(strings.TrimSpace(line), " ")
		roles, err := f.c.Kubectl("--namespace=kube-system", "exec", pod, "--", "loxicmd", "get", "hastate")
		if err == nil && strings.Contains(roles, "MASTER") {
			nodes = append(nodes, on)
		}
	}
	return nodes
}

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

// startNodes starts the nodes that were killed.
func (f *failures) startNodes(ctx context.Context) (err error) {
	for _, n := range f.c.Nodes {
		if !n.Runs() {
			err = errors.Join(err, n.Connect(true), n.Start(ctx))
		}
	}
	return err
}
