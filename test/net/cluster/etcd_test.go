package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
)

// etcd is an etcd server in the nodes' network.
type etcd struct {
	host   *netnstest.Host
	server *netnstest.Process
	dir    string
}

const etcdNumber = 100

func storeURL() string { return fmt.Sprintf("etcd://%s:2379", address(false, 2, etcdNumber)) }

func (f *fleet) addEtcd(lab *netnstest.Lab) {
	f.t.Helper()
	var err error
	f.etcd.host, err = lab.Host("etcd")
	must(f.t, err)
	f.attach(lab, f.etcd.host, 2, etcdNumber)
	f.etcd.dir = f.t.TempDir()
	f.startEtcd()
}

// startEtcd starts the server with the data of its last run.
func (f *fleet) startEtcd() {
	f.t.Helper()
	var err error
	f.etcd.server, err = f.etcd.host.Start(netnstest.Command{Args: []string{
		"etcd", "--data-dir=" + f.etcd.dir, "--listen-client-urls=http://0.0.0.0:2379", fmt.Sprintf("--advertise-client-urls=http://%s:2379", address(false, 2, etcdNumber)),
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=default=http://127.0.0.1:2380",
		"--log-level=error",
	}, Env: []string{"ETCD_UNSUPPORTED_ARCH=arm64"}})
	must(f.t, err)
	f.t.Cleanup(f.etcd.server.Kill)
}

// setEtcdCut makes the bridge drop all packets of the server, or forward them again.
func (f *fleet) setEtcdCut(cut bool) {
	f.t.Helper()
	if !cut {
		rig.MustRun(f.t, f.router, "nft", "delete", "table", "bridge", "etcd")
		return
	}
	at := address(false, 2, etcdNumber) // not its port: clients of services use that port, too
	rig.MustRun(f.t, f.router, "nft", fmt.Sprintf("table bridge etcd { chain forward { type filter hook forward priority 0; ip daddr %s drop; ip saddr %s drop; }; }", at, at))
}

// sharedServices returns the commands that create the services of all nodes. Only the first node
// has any.
func (m *member) sharedServices() string {
	var b strings.Builder
	for _, is6 := range []bool{false, true} {
		if m.number == 1 {
			fmt.Fprintf(&b, "create lb %s --mode=dsr --select=hash --tcp=80:80 --udp=53:53 --probetype=none --bgp --endpoints=%s\n", vip(is6, "dsr"), endpointList(is6))
		}
	}
	return b.String()
}

// TestStoreFailures checks that no connection breaks and no confirmed change is lost if a daemon
// restarts while etcd is down or disconnected.
func TestStoreFailures(t *testing.T) {
	rig.Long(t)
	l := fullLoad()
	l.onlyMode = "dsr"
	e := newExperiment(t, options{bfd: 100 * time.Millisecond, bin: rig.Bin(), useEtcd: true}, l)
	for n := range *roundCount {
		e.run("etcd is killed for 60 s, a daemon restarts", func() {
			e.storeOutage(n, time.Minute, e.fleet.etcd.server.Kill, e.fleet.startEtcd)
		})
		e.run("etcd is cut off for 20 s, a daemon restarts", func() {
			e.storeOutage(n, 20*time.Second, func() { e.fleet.setEtcdCut(true) }, func() { e.fleet.setEtcdCut(false) })
		})
	}
	e.write(*out, "cluster-store")
}

// storeOutage stops the store for a while, and kills and restarts a daemon meanwhile. Afterwards,
// all nodes must have the confirmed services, and none that was refused.
func (e *experiment) storeOutage(round int, d time.Duration, stop, start func()) {
	e.t.Helper()
	a, b, killed := e.fleet.nodes[round%fleetSize], e.fleet.nodes[(round+1)%fleetSize], (round+2)%fleetSize
	create := func(vip string) string {
		return fmt.Sprintf("create lb %s --mode=dsr --tcp=80:80 --probetype=none --endpoints=%s", vip, endpointList(false))
	}
	const confirmed, refused, later = "20.20.21.1", "20.20.21.2", "20.20.21.3"
	a.loxicmd(create(confirmed))
	stop()
	until := time.Now().Add(d)
	await.NoError(e.t, patience, func() error { // a node detects the outage within some seconds
		out, err := b.Command(strings.Fields(create(refused))...)
		if err == nil || !strings.Contains(out, "cannot be used") {
			return fmt.Errorf("a change without etcd: got %w: %s, want an error", err, out)
		}
		return nil
	})
	e.killNode(killed)
	await.True(e.t, d+patience, "the end of the outage", func() bool { return time.Now().After(until) })
	start()
	began := time.Now()
	await.NoError(e.t, patience, func() error {
		out, err := b.Command(strings.Fields(create(later))...)
		if err != nil {
			return fmt.Errorf("a change after etcd has returned: %w: %s", err, out)
		}
		return nil
	})
	e.record("changes are accepted again after, s", time.Since(began).Seconds())
	for _, m := range e.fleet.nodes {
		await.NoError(e.t, patience, func() error {
			out, err := m.Command("get", "lb")
			if err == nil && (!strings.Contains(out, confirmed) || !strings.Contains(out, later) || !strings.Contains(out, vip(false, "dsr"))) {
				err = fmt.Errorf("%s lacks a service that was confirmed", m.host.Name)
			}
			if err == nil && strings.Contains(out, refused) {
				err = fmt.Errorf("%s has a service that was refused", m.host.Name)
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	for _, one := range []string{confirmed, later} {
		a.loxicmd("delete lb " + one + " --tcp=80")
	}
}
