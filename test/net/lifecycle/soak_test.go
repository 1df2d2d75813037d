package lifecycle_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
)

const (
	// soakFlag is the flag that sets for how many seconds TestSoak runs.
	soakFlag = "soak"
	// churnedPorts is the number of ports of services that come and go, from firstChurned on.
	firstChurned, churnedPorts = 1000, 20
	// memoryGrowth is how much more memory a daemon may use after the churn: the events and
	// versions that it keeps are bounded.
	memoryGrowth = 24 << 20
	// settling is how long it may take until connections time out and memory returns to the kernel.
	settling = time.Minute
)

// TestSoak changes services, endpoints, weights, interfaces, links, servers and drains at the same
// time, restarts the daemon, and ends connections by kills and by idle timeouts. Clients of
// unchanged services notice nothing and are counted exactly; afterwards nothing has grown.
//
// P22 After any number of changes no more memory, files, map entries or pins are in use than before
func TestSoak(t *testing.T) {
	t.Parallel()
	seconds := flag.Lookup(soakFlag).Value.(flag.Getter).Get().(int)
	if seconds == 0 {
		rig.Long(t)
		seconds = 60
	}
	half := time.Duration(seconds) * time.Second / 2
	s := newSoak(t)
	s.churn(time.Second, s.comings()...) // first what is created once
	s.tidy()
	before := s.entries()
	labtest.Eventually(t, settling, func(context.Context) error { before = s.entries(); return s.quiet() })

	s.crowd.Hold(rig.Join(rig.VIP4, heldPort), heldConnections)
	s.crowd.OpenRepeatedly(rig.Join(rig.VIP6, visitedPort))
	s.churn(half, append(s.comings(), s.changeDaemon)...)
	s.tidy()
	s.wantCounts()
	s.wantIdleCounts()
	files, memory := s.files(), s.memory()
	s.churn(half, s.comings()...)
	s.tidy()
	s.wantCounts()
	s.wantIdleCounts()
	if err := s.crowd.Finish(); err != nil {
		t.Error(err)
	}
	labtest.Eventually(t, settling, func(context.Context) error {
		if now := s.memory(); now > memory+memoryGrowth {
			return fmt.Errorf("the daemon has %d KiB of memory, it had %d", now>>10, memory>>10)
		}
		if now := s.files(); now > files {
			return fmt.Errorf("the daemon has %d files open, it had %d", now, files)
		}
		return errors.Join(s.quiet(), noMore(before, s.entries()))
	})
	t.Logf("%v; %d answers, the slowest took %v; memory %d KiB, then %d; files %d, then %d", s.did, s.crowd.Answers(),
		s.crowd.Slowest.Round(time.Millisecond), memory>>10, s.memory()>>10, files, s.files())
}

// comings returns all changes that are made while the daemon runs.
func (s *soak) comings() []func() {
	return []func(){
		s.changeService, s.changeInterface, s.changeLink, s.connect, s.changeServer, s.visitMortal, s.drain, s.kill, s.idle, s.idle, s.idle,
	}
}

// soak is a rig with constant changes.
type soak struct {
	*victim
	mu     sync.Mutex
	did    map[string]int
	random *rand.Rand
}

func newSoak(t *testing.T) *soak {
	two := "31.31.31.1:1,32.32.32.1:1" // the link to the third endpoint is down at times
	v := newVictim(t, "auto")
	v.Loxicmd("create lb %s --tcp=%d:7 --endpoints=%s", rig.VIP4, heldPort, two)
	v.Loxicmd("create lb %s --tcp=%d:7 --endpoints=[2001:db8:31::1]:1,[2001:db8:32::1]:1 --mode=fullnat", rig.VIP6, visitedPort)
	s := &soak{victim: v, did: map[string]int{}, random: rig.Seeded(t)}
	s.endsServices(two)
	return s
}

// upTo returns a random number below n.
func (s *soak) upTo(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.did[what]++
}

// churn repeats each of these functions concurrently for d.
func (s *soak) churn(d time.Duration, each ...func()) {
	s.T.Helper()
	end := time.Now().Add(d)
	var running sync.WaitGroup
	for _, f := range each {
		running.Go(func() {
			for time.Now().Before(end) && s.crowd.Failure() == nil && !s.T.Failed() {
				f()
			}
		})
	}
	running.Wait()
	if err := s.crowd.Failure(); err != nil {
		s.T.Fatal(err)
	}
}

// changeService creates, changes or deletes a service. The daemon may be down.
func (s *soak) changeService() {
	port := firstChurned + s.upTo(churnedPorts)
	line := fmt.Sprintf("create lb 20.20.20.3 --tcp=%d:7 --endpoints=%s", port, rig.Endpoints4(1+s.upTo(9), 1+s.upTo(9), s.upTo(2)))
	switch s.upTo(5) {
	case 0:
		line = fmt.Sprintf("delete lb 20.20.20.3 --tcp=%d", port)
	case 1:
		line += " --mode=fullnat"
	case 2:
		line += " --select=hash"
	case 3:
		line += " --select=persist --client-connections=100"
	}
	if _, err := s.Command(strings.Fields(line)...); err == nil {
		s.count("services changed")
	}
}

// changeInterface adds and removes an interface.
func (s *soak) changeInterface() {
	for _, args := range [][]string{{"add", "churned", "type", "veth", "peer", "name", "churned-peer"}, {"set", "churned", "up"}, {"del", "churned"}} {
		if _, err := s.LB.Run(append([]string{"ip", "link"}, args...)...); err != nil {
			s.T.Error(err)
		}
	}
	s.count("interfaces added and removed")
}

// changeLink sets the link to an endpoint down and up.
func (s *soak) changeLink() {
	for _, state := range []string{"down", "up"} {
		if _, err := s.LB.Run("ip", "link", "set", "ep3", state); err != nil {
			s.T.Error(err)
		}
	}
	s.count("links down and up")
}

// connect opens a connection to a service that may or may not exist.
func (s *soak) connect() {
	s.tryOut(rig.Join("20.20.20.3", firstChurned+s.upTo(churnedPorts)), "connections to services that are changed")
}

// changeDaemon stops or kills the daemon, and starts it.
func (s *soak) changeDaemon() {
	if s.upTo(2) == 0 {
		s.Stop()
		s.count("daemons stopped")
	} else {
		s.Kill()
		s.count("daemons killed")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		s.T.Error(err)
	}
}

// tidy deletes the changed services, and what the remaining ones have left.
func (s *soak) tidy() {
	s.T.Helper()
	for port := firstChurned; port < firstChurned+churnedPorts; port++ {
		_, _ = s.Command("delete", "lb", "20.20.20.3", fmt.Sprintf("--tcp=%d", port)) // it may not exist
	}
	s.undrain()
	s.Loxicmd("kill ct --vip=20.20.20.6") // connections of stopped servers
	if out := s.Loxicmd("get lb"); strings.Contains(out, "20.20.20.3") {
		s.T.Errorf("services that were removed:\n%s", out)
	}
}

// quiet returns nil when the connection table has no more than the connections of the crowd.
func (s *soak) quiet() error {
	if n := s.Metric("connections"); n > 0 {
		return fmt.Errorf("%v connections are in the table", n)
	}
	return nil
}

// files returns how many files the daemon has open.
func (s *soak) files() int {
	s.T.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Pid()))
	if err != nil {
		s.T.Fatal(err)
	}
	n := 0
	for _, e := range list { // connections of clients come and go
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", s.Pid(), e.Name()))
		if err == nil && !strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// memory returns how many bytes of memory the daemon uses.
func (s *soak) memory() int {
	s.T.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.Pid()))
	if err != nil {
		s.T.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		s.T.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// entries returns the number of entries of each pinned hash, and the number of pins.
func (s *soak) entries() map[string]int {
	s.T.Helper()
	out := map[string]int{"pins": len(s.Pins())}
	paths, err := filepath.Glob(filepath.Join(netnstest.PinPath(s.Dir()), "maps", "*"))
	if err != nil {
		s.T.Fatal(err)
	}
	for _, path := range paths {
		m, err := ebpf.LoadPinnedMap(path, nil)
		if err != nil {
			s.T.Fatal(err)
		}
		switch m.Type() {
		case ebpf.Hash, ebpf.PerCPUHash, ebpf.LPMTrie, ebpf.HashOfMaps:
			out[filepath.Base(path)] = keys(m)
		}
		_ = m.Close()
	}
	return out
}

// keys counts a map's keys.
func keys(m *ebpf.Map) (n int) {
	key := make([]byte, m.KeySize())
	for err := m.NextKey(nil, key); err == nil; err = m.NextKey(key, key) {
		n++
	}
	return n
}

// noMore returns nil if no count has grown.
func noMore(before, now map[string]int) error {
	var errs []error
	for name, n := range now {
		if n > before[name] {
			errs = append(errs, fmt.Errorf("%s: %d, %d before", name, n, before[name]))
		}
	}
	return errors.Join(errs...)
}
