package rig

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"loxilb/test/netnstest"
)

// Shared returns a rig that an earlier test of the package may have used, or a new one. Its daemon
// runs with the given flags, and has no objects and no connections. Sharing saves 0.6 s of CPU time
// for each start, nearly all of it in the kernel's verifier.
//
// One test at a time uses a rig. When the test ends, its servers and connections end, and its
// objects are deleted. The next test gets the rig, unless an interface, address or route of a host
// has changed, or the daemon was stopped or has other flags.
//
// Metric and Log begin with the test. Memory, grown maps, events, revisions and the kernel's caches
// (TIME-WAIT, path MTU) may contain data of earlier tests. Tests that examine them, or that change
// settings that describe does not list, use New.
func Shared(t testing.TB, args ...string) *Rig {
	t.Helper()
	return SharedAfter(t, nil, args...)
}

// SharedAfter is Shared among tests whose network was changed by the same function, before the
// daemon started.
func SharedAfter(t testing.TB, before func(testing.TB, *netnstest.Standard), args ...string) *Rig {
	t.Helper()
	s := idle.take(before, args)
	if s == nil {
		s = startShared(t, before, args)
	}
	r := &Rig{Standard: s.standard, Daemon: s.daemon, T: t}
	r.logStart, r.startProcess = len(s.daemon.Log()), s.daemon.Process
	page, err := r.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	r.startMetrics = page
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("loxilb's log:\n%s", r.Log())
			s.close(t)
		} else {
			s.release(r)
		}
	})
	return r
}

// Log returns the daemon's output since its last start, or since the test borrowed it.
func (r *Rig) Log() string {
	log := r.Daemon.Log()
	if r.Daemon.Process == r.startProcess {
		log = log[r.logStart:]
	}
	return log
}

// sharedRig is a rig that several tests use one after another.
type sharedRig struct {
	standard   *netnstest.Standard
	daemon     *netnstest.Daemon
	before     uintptr // the function that has changed the network
	args       []string
	mark       netnstest.Mark
	cleanState string // how everything looks between tests
}

// idle has the rigs that no test uses.
var idle pool

type pool struct {
	mu   sync.Mutex
	rigs []*sharedRig
}

// take removes a rig with the given network and flags of the daemon from the pool, and returns it,
// or nil.
func (p *pool) take(before func(testing.TB, *netnstest.Standard), args []string) *sharedRig {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := reflect.ValueOf(before).Pointer()
	i := slices.IndexFunc(p.rigs, func(s *sharedRig) bool { return s.before == at && slices.Equal(s.args, args) })
	if i < 0 {
		return nil
	}
	s := p.rigs[i]
	p.rigs = slices.Delete(p.rigs, i, i+1)
	return s
}

func (p *pool) put(s *sharedRig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rigs = append(p.rigs, s)
}

// close removes all rigs.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.rigs {
		_ = s.standard.Lab.Close()
	}
	p.rigs = nil
}

// startShared creates a rig that outlives the test.
func startShared(t testing.TB, before func(testing.TB, *netnstest.Standard), args []string) *sharedRig {
	t.Helper()
	lab, err := netnstest.New()
	if err != nil {
		t.Fatal(err)
	}
	standard, err := netnstest.NewStandard(lab, netnstest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(t, standard)
	}
	s := &sharedRig{standard: standard, before: reflect.ValueOf(before).Pointer(), args: args}
	r := &Rig{Standard: standard, T: t}
	if err := r.start(args); err != nil {
		s.close(t)
		t.Fatal(err)
	}
	s.daemon, s.mark = r.Daemon, standard.Mark()
	if s.cleanState, err = s.describe(); err != nil {
		s.close(t)
		t.Fatal(err)
	}
	return s
}

func (s *sharedRig) close(t testing.TB) {
	if err := s.standard.Lab.Close(); err != nil {
		t.Errorf("close lab: %v", err)
	}
}

// release cleans up after a test, and returns the rig to the pool if its state is as before.
func (s *sharedRig) release(r *Rig) {
	select {
	case <-r.Done(): // the test has stopped it
		s.close(r.T)
		return
	default:
	}
	err := errors.Join(s.standard.Rewind(s.mark, r.Daemon.Process), s.clear(r))
	now, lookErr := s.describe()
	if err = errors.Join(err, lookErr); err != nil {
		r.T.Errorf("clean up after the test: %v", err)
	}
	if err != nil || now != s.cleanState {
		r.T.Logf("the rig is removed: the test has changed its state:\n%s", diffLines(s.cleanState, now))
		s.close(r.T)
		return
	}
	idle.put(s)
}

// clear ends all connections and deletes all objects.
func (s *sharedRig) clear(r *Rig) error {
	page, err := r.Metrics()
	if err != nil {
		return err
	}
	// The programs that find and end connections are loaded on first use, which takes a third of a
	// start; most tests leave no connections.
	if tracked, _ := r.findSeries(page, "connections", nil); tracked > sumOfSeries(page, "service_connections_inactive") {
		if _, err := s.call(http.MethodDelete, "config/conntrack?all=true", ""); err != nil {
			return err
		}
	}
	if _, err := s.call(http.MethodPost, "config/apply", `{"prune":["all"],"force":true,"objects":[]}`); err != nil {
		return err
	}
	_, err = s.call(http.MethodDelete, "config/loadbalancer/all", "") // including services of controllers
	return err
}

// describe returns the daemon's objects, command and parameters, and the network of all hosts, as
// text.
func (s *sharedRig) describe() (string, error) {
	var b strings.Builder
	fmt.Fprintln(&b, s.daemon.Args())
	for _, what := range []string{"config/objects?managed=true", "config/params", "config/drain/all", "config/cors/all"} {
		text, err := s.call(http.MethodGet, what, "")
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&b, text)
	}
	for _, h := range append([]*netnstest.Host{s.standard.LB, s.standard.Client}, s.standard.Endpoints[:]...) {
		text, err := network(h)
		if err != nil {
			return "", fmt.Errorf("describe the network of %s: %w", h.Name, err)
		}
		fmt.Fprintln(&b, h.Name, h.Sysctls(), text)
	}
	return b.String(), nil
}

// diffLines returns the lines that only one of two texts has.
func diffLines(before, now string) string {
	oldLines, newLines := strings.Split(before, "\n"), strings.Split(now, "\n")
	var b strings.Builder
	for _, line := range oldLines {
		if !slices.Contains(newLines, line) {
			fmt.Fprintln(&b, "-", line)
		}
	}
	for _, line := range newLines {
		if !slices.Contains(oldLines, line) {
			fmt.Fprintln(&b, "+", line)
		}
	}
	return b.String()
}

// network returns the interfaces, addresses, routes, rules and permanent neighbors of a host, as
// text.
func network(h *netnstest.Host) (string, error) {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	nl := h.Netlink()
	links, err := nl.LinkList()
	if err != nil {
		return "", err
	}
	for _, l := range links {
		a := l.Attrs()
		add("%d %s %s %v %v mtu %d of %d gso %d", a.Index, a.Name, l.Type(), a.HardwareAddr, a.Flags, a.MTU, a.MasterIndex, a.GSOMaxSize)
		neighbors, err := nl.NeighList(a.Index, netlink.FAMILY_ALL)
		if err != nil {
			return "", err
		}
		for _, n := range neighbors {
			if n.State&netlink.NUD_PERMANENT != 0 {
				add("neighbor %v", n)
			}
		}
	}
	addresses, err := nl.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		add("address %d %v", a.LinkIndex, a.IPNet)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := nl.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return "", err
		}
		for _, r := range routes {
			add("route %v", r)
		}
		rules, err := nl.RuleList(family)
		if err != nil {
			return "", err
		}
		for _, r := range rules {
			add("rule %v", r)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

// call sends a request to the daemon.
func (s *sharedRig) call(method, path, body string) (string, error) {
	req, err := http.NewRequest(method, "http://127.0.0.1:11111/netlox/v1/"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.standard.LB.HTTPClient(Patience).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // of a test
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s %s", method, path, resp.Status, text)
	}
	return string(text), err
}
