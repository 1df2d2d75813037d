package ha_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"loxilb/test/await"
	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

// etcdPair is two nodes with one etcd, and a client of the first:
//
//	client - a - etcd - b
//
// etcd's host also has the endpoint.
type etcdPair struct {
	t            *testing.T
	client, etcd *netnstest.Host
	server       *netnstest.Process // etcd
	nodes        [2]*member
}

// member is a node, with its number from 0.
type member struct {
	*netnstest.Daemon
	host   *netnstest.Host
	number int
}

func newEtcdPair(t *testing.T) *etcdPair {
	t.Helper()
	lab := labtest.New(t)
	host := func(name string) *netnstest.Host {
		h, err := lab.Host(name)
		must(t, err)
		return h
	}
	end := func(h *netnstest.Host, name, address string) netnstest.End {
		return netnstest.End{Host: h, Interface: name, Addresses: []netip.Prefix{netip.MustParsePrefix(address)}}
	}
	s := &etcdPair{t: t, client: host("client"), etcd: host("etcd")}
	for i, name := range []string{"a", "b"} {
		s.nodes[i] = &member{host: host(name), number: i}
		must(t, lab.Link(end(s.nodes[i].host, "etcd", fmt.Sprintf("10.3.%d.1/24", i)), end(s.etcd, name, fmt.Sprintf("10.3.%d.2/24", i)), 0))
	}
	must(t, lab.Link(end(s.client, "eth0", "10.0.0.2/24"), end(s.nodes[0].host, "client", "10.0.0.1/24"), 0))
	rig.MustRun(t, s.client, "ip", "route", "add", "default", "via", "10.0.0.1")
	must(t, s.etcd.ServeTCP("10.3.0.2:80", netnstest.Echo))
	s.startEtcd(t.TempDir())
	var starting sync.WaitGroup
	for i, m := range s.nodes {
		starting.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), rig.StartPatience)
			defer cancel()
			var err error
			m.Daemon, err = m.host.StartDaemon(ctx, netnstest.DaemonOptions{Bin: rig.Bin(), Args: []string{
				fmt.Sprintf("--store=etcd://10.3.%d.2:2379/test", i), "--cluster-node=" + m.host.Name,
			}})
			if err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		for _, m := range s.nodes {
			if t.Failed() && m.Daemon != nil {
				t.Logf("log of %s:\n%s", m.host.Name, m.Log())
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return s
}

// startEtcd starts etcd with the data in a directory.
func (s *etcdPair) startEtcd(dir string) {
	s.t.Helper()
	var err error
	s.server, err = s.etcd.Start(netnstest.Command{Args: []string{
		"etcd", "--data-dir=" + dir, "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://10.3.0.2:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380", "--initial-cluster=default=http://127.0.0.1:2380",
		"--log-level=error",
	}, Env: []string{"ETCD_UNSUPPORTED_ARCH=arm64"}})
	must(s.t, err)
	s.t.Cleanup(s.server.Kill)
}

func (s *etcdPair) etcdctl(args ...string) {
	s.t.Helper()
	p, err := s.etcd.Start(netnstest.Command{Args: append([]string{"etcdctl"}, args...), Env: []string{"ETCDCTL_API=3"}})
	must(s.t, err)
	if err := p.Wait(); err != nil {
		s.t.Fatalf("etcdctl %v: %v: %s", args, err, p.Output())
	}
}

// request makes a request of the API of a node.
func (m *member) request(method, path, body string, header ...string) (code int, answer string, h http.Header, err error) {
	r, err := http.NewRequest(method, "http://127.0.0.1:11111/netlox/v1"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := m.host.HTTPClient(patience).Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), resp.Header, err
}

// service is the body that creates a service.
func service(vip, name string) string {
	return fmt.Sprintf(
		`{"serviceArguments":{"externalIP":%q,"port":80,"protocol":"tcp","mode":1,"name":%q},"endpoints":[{"endpointIP":"10.3.0.2","targetPort":80,"weight":1}]}`,
		vip, name)
}

// put creates or changes a service, and returns its tag.
func (s *etcdPair) put(m *member, vip, name string) string {
	s.t.Helper()
	code, answer, h, err := m.request(http.MethodPost, "/config/loadbalancer", service(vip, name))
	if err != nil || code != http.StatusOK {
		s.t.Fatalf("%s: got %v %d %s, want no error, code 200", m.host.Name, err, code, answer)
	}
	return h.Get("ETag")
}

// awaitShown waits until the answer to GET path on a node contains all texts.
func (s *etcdPair) awaitShown(m *member, path string, want ...string) {
	s.t.Helper()
	await.NoError(s.t, patience, func() error {
		_, answer, _, err := m.request(http.MethodGet, path, "")
		for _, text := range want {
			if err == nil && !strings.Contains(answer, text) {
				err = fmt.Errorf("%s shows no %q: %s", m.host.Name, text, answer)
			}
		}
		return err
	})
}

// wantReachable checks that the client reaches services through the first node.
func (s *etcdPair) wantReachable(vips ...string) {
	s.t.Helper()
	for _, vip := range vips {
		await.NoError(s.t, patience, func() error {
			conn, err := s.client.DialContext(s.t.Context(), "tcp", vip+":80")
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}
}

const allServices = "/config/loadbalancer/all"

// TestSharedStore changes services on one node and reads them on the other. It kills etcd, restarts
// a node meanwhile, disconnects a node, and damages entries.
//
// P86 With --store, packets and starts of the daemon do not need etcd: the last known services
// apply.
func TestSharedStore(t *testing.T) {
	t.Parallel()
	s := newEtcdPair(t)
	a, b := s.nodes[0], s.nodes[1]
	s.awaitWritable(a) // etcd may have started later than the daemons
	s.awaitWritable(b)
	tag := s.put(a, "20.20.20.1", "first")
	s.awaitShown(b, allServices, `"first"`)
	s.put(b, "20.20.20.2", "second")
	s.awaitShown(a, allServices, `"first"`, `"second"`)
	s.wantReachable("20.20.20.1", "20.20.20.2")
	s.awaitShown(a, "/status/node", `"name":"b"`, `"version":"`)
	s.raceChanges(tag)
	s.loseEtcd(a, b)
	s.damageEntries(a, b)
	s.cutLink(a, b)
}

// raceChanges changes the same version of a service on both nodes at the same time, and checks that
// one change is refused.
func (s *etcdPair) raceChanges(tag string) {
	s.t.Helper()
	var codes [2]int
	var tags [2]string
	for round := range 5 {
		var both sync.WaitGroup
		for i, m := range s.nodes {
			both.Go(func() {
				code, answer, h, err := m.request(http.MethodPost, "/config/loadbalancer", service("20.20.20.1", fmt.Sprintf("round%d%s", round, m.host.Name)), "If-Match", tag)
				if codes[i], tags[i] = code, h.Get("ETag"); err != nil || code != http.StatusOK && code != http.StatusPreconditionFailed {
					s.t.Errorf("%s: got %v %d %s, want no error, code 200 or code 412",
						m.host.Name, err, code, answer)
				}
			})
		}
		both.Wait()
		if codes[0]+codes[1] != http.StatusOK+http.StatusPreconditionFailed {
			s.t.Fatalf("round %d with If-Match %s: codes %v", round, tag, codes)
		}
		winner := 0
		if codes[1] == http.StatusOK {
			winner = 1
		}
		tag = tags[winner]
		for _, m := range s.nodes {
			s.awaitShown(m, allServices, fmt.Sprintf(`"round%d%s"`, round, s.nodes[winner].host.Name))
		}
	}
}

// loseEtcd kills etcd, and starts a node without it.
func (s *etcdPair) loseEtcd(a, b *member) {
	s.t.Helper()
	dir := strings.TrimPrefix(s.etcdArgs(), "--data-dir=")
	s.server.Kill()
	await.NoError(s.t, patience, func() error {
		code, answer, _, err := b.request(http.MethodPost, "/config/loadbalancer", service("20.20.20.3", "lost"))
		if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(answer, "etcd at 10.3.1.2:2379 cannot be used since") {
			return fmt.Errorf("answer %d %s (%w)", code, answer, err)
		}
		return nil
	})
	if code, answer, h, err := b.request(http.MethodGet, allServices, ""); err != nil || code != http.StatusOK ||
		h.Get("Age") == "" || !strings.Contains(h.Get("Warning"), "etcd at 10.3.1.2:2379") {
		s.t.Errorf("a read without etcd: %v %d %v %s", err, code, h, answer)
	}
	s.awaitShown(b, "/status/objects?failed=true", `"shared store"`)
	a.Kill()
	ctx, cancel := context.WithTimeout(s.t.Context(), rig.StartPatience)
	defer cancel()
	must(s.t, a.Start(ctx))
	s.awaitShown(a, allServices, `"round4`, `"second"`)
	if _, _, h, err := a.request(http.MethodGet, allServices, ""); err != nil || h.Get("Age") != "" || !strings.Contains(h.Get("Warning"), "from before ") {
		s.t.Errorf("a read from a node that has not reached etcd since its start: %v %v", err, h)
	}
	s.wantReachable("20.20.20.1", "20.20.20.2")
	if code, answer, _, err := a.request(http.MethodPost, "/config/vlan", `{"vid":7}`); err != nil || code != http.StatusOK {
		s.t.Errorf("an object of the node without etcd: %v %d %s", err, code, answer)
	}
	s.startEtcd(dir)
	await.NoError(s.t, patience, func() error {
		code, answer, _, err := a.request(http.MethodPost, "/config/loadbalancer", service("20.20.20.4", "fourth"))
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, answer)
		}
		return err
	})
	s.awaitShown(b, allServices, `"fourth"`)
	if _, answer, _, _ := b.request(http.MethodGet, allServices, ""); strings.Contains(answer, `"lost"`) {
		s.t.Error("a refused service exists")
	}
}

// etcdArgs returns the argument with etcd's directory.
func (s *etcdPair) etcdArgs() string {
	s.t.Helper()
	out, err := s.etcd.Run("cat", fmt.Sprintf("/proc/%d/cmdline", s.server.Pid()))
	must(s.t, err)
	return strings.Split(out, "\x00")[1]
}

// awaitWritable waits until a node can change shared objects.
func (s *etcdPair) awaitWritable(m *member) {
	s.t.Helper()
	await.NoError(s.t, patience, func() error {
		_, _, h, err := m.request(http.MethodGet, allServices, "")
		if err == nil && h.Get("Warning") != "" {
			err = fmt.Errorf("%s answers with old objects: %v", m.host.Name, h)
		}
		return err
	})
}

// damageEntries writes entries to etcd that are not valid objects, and deletes one.
func (s *etcdPair) damageEntries(a, b *member) {
	s.t.Helper()
	s.etcdctl("put", "/test/service/20.20.20.2:80/tcp", "garbage")
	s.etcdctl("put", "/test/strange", "x")
	for _, m := range s.nodes {
		s.awaitShown(m, "/status/objects?failed=true", `"service/20.20.20.2:80/tcp"`, "its value is not an object of loxilb", `"strange"`)
		s.awaitShown(m, allServices, `"second"`, `"fourth"`)
	}
	s.wantReachable("20.20.20.2")
	s.put(b, "20.20.20.2", "repaired")
	s.awaitShown(a, allServices, `"repaired"`)
	s.etcdctl("del", "/test/service/20.20.20.4:80/tcp")
	await.NoError(s.t, patience, func() error {
		_, answer, _, err := a.request(http.MethodGet, allServices, "")
		if err == nil && strings.Contains(answer, `"fourth"`) {
			err = fmt.Errorf("the node has a service that etcdctl deleted: %s", answer)
		}
		return err
	})
}

// cutLink sets the link between b and etcd down for a while.
func (s *etcdPair) cutLink(a, b *member) {
	s.t.Helper()
	rig.MustRun(s.t, s.etcd, "ip", "link", "set", "dev", "b", "down")
	s.awaitShown(b, "/status/objects?failed=true", `"shared store"`)
	s.put(a, "20.20.20.5", "meanwhile")
	start := time.Now()
	if code, answer, _, err := b.request(http.MethodPost, "/config/loadbalancer", service("20.20.20.6", "cut")); err != nil ||
		code != http.StatusServiceUnavailable || time.Since(start) > 2*time.Second {
		s.t.Errorf("a change on a node without etcd, after %v: %v %d %s", time.Since(start), err, code, answer)
	}
	rig.MustRun(s.t, s.etcd, "ip", "link", "set", "dev", "b", "up")
	s.awaitShown(b, allServices, `"meanwhile"`)
	s.awaitWritable(b)
	s.put(b, "20.20.20.6", "back")
	s.awaitShown(a, allServices, `"back"`)
}
