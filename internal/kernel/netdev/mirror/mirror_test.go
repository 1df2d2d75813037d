package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"loxilb/internal/event"
	"loxilb/internal/kernel/netdev/netlink"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

const patience = 20 * time.Second

// TestSubscriptionDies checks that a subscription without messages, or with a broken socket, is
// noticed within seconds, that everything is read again, and that later changes are received.
func TestSubscriptionDies(t *testing.T) {
	t.Parallel()
	for what, kill := range map[string]func(fd int) error{
		"deaf": func(fd int) error {
			return unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, unix.RTNLGRP_LINK)
		},
		"another file": func(fd int) error {
			null, err := os.Open(os.DevNull)
			if err != nil {
				return err
			}
			defer null.Close()
			return unix.Dup3(int(null.Fd()), fd, unix.O_CLOEXEC)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			a, _ := labtest.Pair(t)
			m := openHost(t, a, subscriptionBytes)
			var failed error
			if err := m.subscription.Socket().Control(func(fd uintptr) { failed = kill(int(fd)) }); err != nil || failed != nil {
				t.Fatalf("got %v %v, want no error, failed == nil", err, failed)
			}
			g := follow(t, m)
			for _, name := range []string{"while0", "after0"} {
				labtest.Run(t, a, "ip", "link", "add", name, "type", "bridge")
				labtest.Eventually(t, patience, func(context.Context) error {
					g.mu.Lock()
					defer g.mu.Unlock()
					for _, e := range g.Events {
						if strings.Contains(fmt.Sprint(e), name) {
							return nil
						}
					}
					return fmt.Errorf("there was no notification of %s", name)
				})
			}
		})
	}
}

func openHost(t *testing.T, h *netnstest.Host, bufferBytes int) *Mirror {
	t.Helper()
	ns, err := netlink.OpenNamespace(h.Path())
	if err != nil {
		t.Fatal(err)
	}
	m, err := open(ns, slog.New(slog.NewTextHandler(t.Output(), nil)), bufferBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := ns.Close(); err != nil {
			t.Errorf("close namespace: %v", err)
		}
	})
	return m
}

// kernelContent returns the content of a new mirror, which reads the kernel's current state.
func kernelContent(t *testing.T, h *netnstest.Host) string {
	t.Helper()
	ns, err := netlink.OpenNamespace(h.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close() //nolint:errcheck // of a test
	m, err := open(ns, slog.New(slog.DiscardHandler), subscriptionBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() //nolint:errcheck // of a test
	return m.content()
}

// follow runs the mirror until the test ends, and returns the collected changes.
func follow(t *testing.T, m *Mirror) *collected {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	g := &collected{}
	running.Go(func() { m.Run(ctx, g.add) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return g
}

type collected struct {
	mu sync.Mutex
	Change
}

func (g *collected) add(c Change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Merge(c)
}

func (g *collected) events() []event.Body {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.Events)
}

// batch runs lines of `ip` in one process, and continues after those that the kernel refuses.
func batch(t *testing.T, h *netnstest.Host, lines ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "batch")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _ = h.Run("ip", "-force", "-batch", file)
}

// commands runs lines of `ip`, none of which may fail.
func commands(t *testing.T, h *netnstest.Host, lines ...string) {
	t.Helper()
	labtest.Run(t, h, "sh", "-ec", "ip "+strings.Join(lines, "\nip "))
}

// content returns the content of a mirror, without data whose changes the kernel does not report.
func (m *Mirror) content() string {
	t := m.tables
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []string
	for _, l := range t.links {
		out = append(out, fmt.Sprintf("link %d %s %s up=%v mtu=%d master=%d", l.Index, l.Name, l.MAC, l.Up, l.MTU, l.Master))
	}
	for a, places := range t.addresses {
		for _, p := range places {
			out = append(out, fmt.Sprintf("address %s on %d %s", a, p.link, p.prefix))
		}
	}
	for n := range t.networks {
		out = append(out, fmt.Sprintf("network %s on %d table %d", n.prefix, n.link, n.table))
	}
	for h, n := range t.neighbours {
		if n.state != 0 {
			out = append(out, fmt.Sprintf("neighbour %s on %d %x", h.Via, h.Link, n.mac))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestSurveyedAgain checks that after a lost message routes count as possibly depending on more
// than the destination until they were read again.
func TestSurveyedAgain(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	m := openHost(t, a, subscriptionBytes)
	if _, err := m.surveyOnce(); err != nil {
		t.Fatal(err)
	}
	if !m.ByDestination() {
		t.Fatal("routes depend on more than the destination before any change")
	}
	labtest.Run(t, a, "ip", "rule", "add", "from", "10.9.0.0/16", "table", "100")
	if _, err := m.resync(); err != nil {
		t.Fatal(err)
	}
	if m.Surveyed() || m.ByDestination() {
		t.Errorf("after everything was read again: surveyed %v, by destination %v", m.Surveyed(), m.ByDestination())
	}
	if _, err := m.surveyOnce(); err != nil {
		t.Fatal(err)
	}
	if m.ByDestination() || !m.Surveyed() {
		t.Error("the survey missed a rule")
	}
}

// TestOverrun checks that a subscription that constantly loses messages ends with the kernel's
// state. Links and addresses are removed and added under the same names, so a late old message
// would show.
func TestOverrun(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	m := openHost(t, a, 0) // the smallest buffer: two or three messages
	g := follow(t, m)
	for round := range 5 {
		var lines []string
		for i := range 60 {
			lines = append(lines,
				fmt.Sprintf("link add d%d type bridge", i%20), fmt.Sprintf("link set d%d up mtu %d", i%20, 1000+i),
				fmt.Sprintf("addr add 10.%d.%d.1/24 dev d%d", 10+round, i, i%20),
				fmt.Sprintf("neigh replace 10.1.0.%d lladdr 02:00:00:00:%02x:%02x dev eth0", 100+i%20, round, i),
				fmt.Sprintf("addr del 10.%d.%d.1/24 dev d%d", 10+round, i/2, i/2%20))
			if i%7 == 0 {
				lines = append(lines, fmt.Sprintf("link del d%d", i%20))
			}
		}
		batch(t, a, lines...)
		labtest.Eventually(t, patience, func(context.Context) error {
			// Read again each time: the kernel goes on to change states of links and neighbours.
			if diff := cmp.Diff(strings.Split(kernelContent(t, a), "\n"), strings.Split(m.content(), "\n")); diff != "" {
				return fmt.Errorf("-kernel +mirror\n%s", diff)
			}
			return nil
		})
	}
	shown := map[string]bool{}
	for _, e := range g.events() {
		if l, ok := e.(event.Link); ok {
			shown[l.Name] = l.Action != event.Removed
		}
	}
	for _, l := range m.Links() {
		if strings.HasPrefix(l.Name, "d") && !shown[l.Name] {
			t.Errorf("%s exists, but no event reported it", l.Name)
		}
	}
}

// TestReopens checks that a failed subscription is opened again, and that changes meanwhile are
// known.
func TestReopens(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	m := openHost(t, a, subscriptionBytes)
	dead := m.subscription
	follow(t, m)
	labtest.Run(t, a, "ip", "link", "add", "before", "type", "bridge")
	has := func(name string) {
		t.Helper()
		labtest.Eventually(t, patience, func(context.Context) error {
			if !slices.ContainsFunc(m.Links(), func(l Link) bool { return l.Name == name }) {
				return fmt.Errorf("no link %s", name)
			}
			return nil
		})
	}
	has("before")
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	labtest.Run(t, a, "ip", "link", "add", "meanwhile", "type", "bridge")
	has("meanwhile")
	labtest.Run(t, a, "ip", "link", "add", "after", "type", "bridge")
	has("after")
	labtest.Eventually(t, patience, func(context.Context) error {
		_, err := m.LastError()
		return err
	})
}

// TestGeneration checks that a link that was deleted and created again with its index between two
// reads counts as another one, and that one that only changed does not.
func TestGeneration(t *testing.T) {
	t.Parallel()
	a, _ := labtest.Pair(t)
	m := openHost(t, a, subscriptionBytes)
	follow(t, m)
	link := func(mtu int) (out Link) {
		t.Helper()
		labtest.Eventually(t, patience, func(context.Context) error {
			if out = m.Link(77); out.MTU != mtu {
				return fmt.Errorf("link 77 is %+v", out)
			}
			return nil
		})
		return out
	}
	commands(t, a, "link add index 77 name x mtu 1401 address 02:00:00:00:00:77 type bridge")
	first := link(1401)
	commands(t, a, "link set x mtu 1402 up")
	if l := link(1402); l.Generation != first.Generation || first.Generation == 0 {
		t.Errorf("a link that changed is of generation %d, was %d", l.Generation, first.Generation)
	}
	commands(t, a, "link del x", "link add index 77 name x mtu 1403 address 02:00:00:00:00:77 type bridge")
	second := link(1403)
	if second.Generation == first.Generation {
		t.Error("a link made again looks like the one before")
	}

	// Messages are lost: a link that cannot be the same counts as another one, and one that can be
	// does not.
	if _, err := m.resync(); err != nil {
		t.Fatal(err)
	}
	if l := m.Link(77); l.Generation != second.Generation {
		t.Errorf("a link that stayed is of generation %d after a resync, was %d", l.Generation, second.Generation)
	}
	quiet := openHost(t, a, subscriptionBytes) // without a follower
	before := quiet.Link(77)
	commands(t, a, "link del x", "link add index 77 name x mtu 1403 type veth peer name y")
	if _, err := quiet.resync(); err != nil {
		t.Fatal(err)
	}
	if l := quiet.Link(77); l.Generation == before.Generation || l.Kind != "veth" {
		t.Errorf("after lost messages: %+v, before %+v", l, before)
	}
}
