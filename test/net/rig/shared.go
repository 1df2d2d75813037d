package rig

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	"loxilb/test/netnstest"
)

// Shared returns a rig like New's, which may come from an earlier test of the package: its daemon
// runs with these flags, without objects and connections. A start costs 0.6 s of CPU time, nearly
// all of it in the kernel's verifier.
//
// A rig belongs to one test at a time. When the test ends, its servers and connections end, its
// objects are deleted, and the rig waits for the next test. A rig that does not look as before is
// removed: hosts with other interfaces, addresses or routes, a daemon that was stopped or has other
// flags.
//
// Metric and Log begin with the test. Memory, grown maps, events, revisions and the kernel's caches
// (TIME-WAIT, path MTU) may be of earlier tests; tests that look at them, or change settings of
// hosts that are not compared, use New.
func Shared(t testing.TB, args ...string) *Rig {
	t.Helper()
	l := idle.take(args)
	if l == nil {
		l = startShared(t, args)
	}
	r := &Rig{Standard: l.standard, Daemon: l.daemon, T: t}
	r.logged, r.process = len(l.daemon.Log()), l.daemon.Process
	page, err := r.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	r.counted = page
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("loxilb's log:\n%s", r.Log())
			l.close(t)
		} else {
			l.release(r)
		}
	})
	return r
}

// Log returns the daemon's output since its last start, or since the test borrowed it.
func (r *Rig) Log() string {
	log := r.Daemon.Log()
	if r.Daemon.Process == r.process {
		log = log[r.logged:]
	}
	return log
}

// sharedRig is a rig that tests borrow one after another.
type sharedRig struct {
	standard *netnstest.Standard
	daemon   *netnstest.Daemon
	args     []string
	mark     netnstest.Mark
	before   string // how everything looks between tests
}

// idle has the rigs that no test is using.
var idle pool

type pool struct {
	mu   sync.Mutex
	rigs []*sharedRig
}

// take returns a rig whose daemon has these flags, nil if there is none.
func (p *pool) take(args []string) *sharedRig {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.rigs, func(l *sharedRig) bool { return slices.Equal(l.args, args) })
	if i < 0 {
		return nil
	}
	l := p.rigs[i]
	p.rigs = slices.Delete(p.rigs, i, i+1)
	return l
}

func (p *pool) put(l *sharedRig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rigs = append(p.rigs, l)
}

// close removes the rigs when all tests have ended.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.rigs {
		_ = l.standard.Lab.Close()
	}
	p.rigs = nil
}

// startShared makes a rig that outlives the test.
func startShared(t testing.TB, args []string) *sharedRig {
	t.Helper()
	lab, err := netnstest.New()
	if err != nil {
		t.Fatal(err)
	}
	s, err := netnstest.NewStandard(lab, netnstest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := &sharedRig{standard: s, args: args}
	r := &Rig{Standard: s, T: t}
	if err := r.start(args); err != nil {
		l.close(t)
		t.Fatal(err)
	}
	l.daemon, l.mark = r.Daemon, s.Mark()
	if l.before, err = l.describe(); err != nil {
		l.close(t)
		t.Fatal(err)
	}
	return l
}

func (l *sharedRig) close(t testing.TB) {
	if err := l.standard.Lab.Close(); err != nil {
		t.Errorf("close lab: %v", err)
	}
}

// release cleans up after a test, and keeps the rig for the next one if it looks as before.
func (l *sharedRig) release(r *Rig) {
	select {
	case <-r.Done(): // the test has stopped it
		l.close(r.T)
		return
	default:
	}
	err := errors.Join(l.standard.Rewind(l.mark, r.Daemon.Process), l.clear(r))
	now, lookErr := l.describe()
	if err = errors.Join(err, lookErr); err != nil {
		r.T.Errorf("clean up after the test: %v", err)
	}
	if err != nil || now != l.before {
		r.T.Logf("the rig is removed, as it looks different now:\n%s", difference(l.before, now))
		l.close(r.T)
		return
	}
	idle.put(l)
}

// clear ends all connections and deletes all objects.
func (l *sharedRig) clear(r *Rig) error {
	page, err := r.Metrics()
	if err != nil {
		return err
	}
	// The programs that find and end connections are loaded on first use, which takes a third of a
	// start; most tests leave no connections.
	if tracked, _ := r.seriesOf(page, "connections", nil); tracked > total(page, "service_connections_inactive") {
		if _, err := l.call(http.MethodDelete, "config/conntrack?all=true", ""); err != nil {
			return err
		}
	}
	if _, err := l.call(http.MethodPost, "config/apply", `{"prune":["all"],"force":true,"objects":[]}`); err != nil {
		return err
	}
	_, err = l.call(http.MethodDelete, "config/loadbalancer/all", "") // including services of controllers
	return err
}

// describe describes the objects, the daemon's command and parameters, and the network of all
// hosts.
func (l *sharedRig) describe() (string, error) {
	var b strings.Builder
	fmt.Fprintln(&b, l.daemon.Args())
	for _, what := range []string{"config/objects?managed=true", "config/params", "config/drain/all", "config/cors/all"} {
		text, err := l.call(http.MethodGet, what, "")
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&b, text)
	}
	for _, h := range append([]*netnstest.Host{l.standard.LB, l.standard.Client}, l.standard.Endpoints[:]...) {
		text, err := network(h)
		if err != nil {
			return "", fmt.Errorf("look at the network of %s: %w", h.Name, err)
		}
		fmt.Fprintln(&b, h.Name, h.Sysctls(), text)
	}
	return b.String(), nil
}

// difference returns the lines that are in only one of two texts.
func difference(before, now string) string {
	was, is := strings.Split(before, "\n"), strings.Split(now, "\n")
	var b strings.Builder
	for _, line := range was {
		if !slices.Contains(is, line) {
			fmt.Fprintln(&b, "-", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			fmt.Fprintln(&b, "+", line)
		}
	}
	return b.String()
}

// network describes the interfaces, addresses, routes and rules of a host, and the neighbors that
// were not learned.
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
func (l *sharedRig) call(method, path, body string) (string, error) {
	req, err := http.NewRequest(method, "http://127.0.0.1:11111/netlox/v1/"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.standard.LB.HTTPClient(Patience).Do(req)
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
