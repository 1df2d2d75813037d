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

// etcd is a server at the nodes' network.
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

// startEtcd starts the server, with the data that it had.
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

// cutEtcd drops all packets of the server, or forwards them again.
func (f *fleet) cutEtcd(cut bool) {
	f.t.Helper()
	if !cut {
		rig.MustRun(f.t, f.router, "nft", "delete", "table", "bridge", "etcd")
		return
	}
	at := address(false, 2, etcdNumber) // not its port alone: clients use that, too
	rig.MustRun(f.t, f.router, "nft", fmt.Sprintf("table bridge etcd { chain forward { type filter hook forward priority 0; ip daddr %s drop; ip saddr %s drop; }; }", at, at))
}

// sharedServices returns the commands that create the services of all nodes; none but for the first
// node.
func (m *member) sharedServices() string {
	var b strings.Builder
	for _, is6 := range []bool{false, true} {
		if m.number == 1 {
			fmt.Fprintf(&b, "create lb %s --mode=dsr --select=hash --tcp=80:80 --udp=53:53 --probetype=none --bgp --endpoints=%s\n", vip(is6, "dsr"), endpointList(is6))
		}
	}
	return b.String()
}

// TestProofStore checks that no connection breaks and no confirmed change is lost while etcd is
// down or cut off, and a daemon restarts meanwhile.
func TestProofStore(t *testing.T) {
	rig.Long(t)
	l := fullLoad()
	l.only = "dsr"
	p := newProof(t, options{bfd: 100 * time.Millisecond, bin: rig.Bin(), store: true}, l)
	for n := range *rounds {
		p.run("etcd is killed for 60 s, a daemon restarts", func() {
			p.storeAway(n, time.Minute, p.f.etcd.server.Kill, p.f.startEtcd)
		})
		p.run("etcd is cut off for 20 s, a daemon restarts", func() {
			p.storeAway(n, 20*time.Second, func() { p.f.cutEtcd(true) }, func() { p.f.cutEtcd(false) })
		})
	}
	p.write(*out, "cluster-store")
}

// storeAway takes the store away for a while, in which a daemon is killed and starts again. What
// was confirmed before is there afterwards, and what was refused is not.
func (p *proof) storeAway(round int, d time.Duration, away, back func()) {
	p.t.Helper()
	a, b, killed := p.f.nodes[round%fleetSize], p.f.nodes[(round+1)%fleetSize], (round+2)%fleetSize
	create := func(vip string) string {
		return fmt.Sprintf("create lb %s --mode=dsr --tcp=80:80 --probetype=none --endpoints=%s", vip, endpointList(false))
	}
	const confirmed, refused, later = "20.20.21.1", "20.20.21.2", "20.20.21.3"
	a.loxicmd(create(confirmed))
	away()
	until := time.Now().Add(d)
	await.NoError(p.t, patience, func() error { // etcd is missed within some seconds
		out, err := b.Command(strings.Fields(create(refused))...)
		if err == nil || !strings.Contains(out, "cannot be used") {
			return fmt.Errorf("a change without etcd ends with %w: %s", err, out)
		}
		return nil
	})
	p.killed(killed)
	await.True(p.t, d+patience, "the end of the outage", func() bool { return time.Now().After(until) })
	back()
	began := time.Now()
	await.NoError(p.t, patience, func() error {
		out, err := b.Command(strings.Fields(create(later))...)
		if err != nil {
			return fmt.Errorf("a change once etcd is back: %w: %s", err, out)
		}
		return nil
	})
	p.note("changes are taken again after, s", time.Since(began).Seconds())
	for _, m := range p.f.nodes {
		await.NoError(p.t, patience, func() error {
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
