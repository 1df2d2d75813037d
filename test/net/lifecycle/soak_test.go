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
	// churnedPorts is the number of services that are created and deleted, at ports from
	// firstChurned on.
	firstChurned, churnedPorts = 1000, 20
	// memoryGrowth is how much more memory a daemon may use after the churn: it keeps a limited
	// number of events and versions.
	memoryGrowth = 24 << 20
	// settleTime limits how long connections may take to time out, and memory to return to the
	// kernel.
	settleTime = time.Minute
)

// TestSoak changes services, endpoints, weights, interfaces, links, servers and drains at the same
// time, restarts the daemon, and ends connections by kills and by idle timeouts. Clients of
// unchanged services see no error and are counted exactly. Afterwards, no map, file or memory use
// has grown.
//
// P22 No number of changes increases the memory, files, map entries and pins in use
func TestSoak(t *testing.T) {
	t.Parallel()
	seconds := flag.Lookup(soakFlag).Value.(flag.Getter).Get().(int)
	if seconds == 0 {
		rig.Long(t)
		seconds = 60
	}
	half := time.Duration(seconds) * time.Second / 2
	s := newSoak(t)
	s.churn(time.Second, s.changesWhileRunning()...) // creates everything that is created only once
	s.deleteChurned()
	before := s.entries()
	labtest.Eventually(t, settleTime, func(context.Context) error { before = s.entries(); return s.checkNoConnections() })

	s.clients.Hold(rig.Join(rig.VIP4, heldPort), heldConnections)
	s.clients.OpenRepeatedly(rig.Join(rig.VIP6, shortPort))
	s.churn(half, append(s.changesWhileRunning(), s.changeDaemon)...)
	s.deleteChurned()
	s.wantCounts()
	s.wantIdleCounts()
	files, memory := s.files(), s.memory()
	s.churn(half, s.changesWhileRunning()...)
	s.deleteChurned()
	s.wantCounts()
	s.wantIdleCounts()
	if err := s.clients.Finish(); err != nil {
		t.Error(err)
	}
	labtest.Eventually(t, settleTime, func(context.Context) error {
		if now := s.memory(); now > memory+memoryGrowth {
			return fmt.Errorf("the daemon uses %d KiB of memory, %d before", now>>10, memory>>10)
		}
		if now := s.files(); now > files {
			return fmt.Errorf("the daemon has %d open files, %d before", now, files)
		}
		return errors.Join(s.checkNoConnections(), checkNotGrown(before, s.entries()))
	})
	t.Logf("%v; %d answers, the slowest took %v; memory %d KiB, then %d; files %d, then %d", s.counts, s.clients.Answers(),
		s.clients.Slowest.Round(time.Millisecond), memory>>10, s.memory()>>10, files, s.files())
}

// changesWhileRunning returns all changes that need a running daemon.
func (s *soak) changesWhileRunning() []func() {
	return []func(){
		s.changeService, s.changeInterface, s.changeLink, s.connectToChangedService, s.changeServer, s.connectToChangedServer, s.drain, s.killConnections, s.awaitIdleTimeout, s.awaitIdleTimeout, s.awaitIdleTimeout,
	}
}

// soak is a rig with constant changes, which it counts by kind.
type soak struct {
	*killRig
	mu     sync.Mutex
	counts map[string]int
	random *rand.Rand
}

func newSoak(t *testing.T) *soak {
	two := "31.31.31.1:1,32.32.32.1:1" // changeLink sets the link to the third endpoint down
	k := newKillRig(t, "auto")
	k.Loxicmd("create lb %s --tcp=%d:7 --endpoints=%s", rig.VIP4, heldPort, two)
	k.Loxicmd("create lb %s --tcp=%d:7 --endpoints=[2001:db8:31::1]:1,[2001:db8:32::1]:1 --mode=fullnat", rig.VIP6, shortPort)
	s := &soak{killRig: k, counts: map[string]int{}, random: rig.Seeded(t)}
	s.createEndingServices(two)
	return s
}

// randomBelow returns a random number below n.
func (s *soak) randomBelow(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// churn repeats each of these functions concurrently for d.
func (s *soak) churn(d time.Duration, each ...func()) {
	s.T.Helper()
	end := time.Now().Add(d)
	var running sync.WaitGroup
	for _, f := range each {
		running.Go(func() {
			for time.Now().Before(end) && s.clients.Failure() == nil && !s.T.Failed() {
				f()
			}
		})
	}
	running.Wait()
	if err := s.clients.Failure(); err != nil {
		s.T.Fatal(err)
	}
}

// changeService creates, changes or deletes a service. The daemon may be down.
func (s *soak) changeService() {
	port := firstChurned + s.randomBelow(churnedPorts)
	line := fmt.Sprintf("create lb 20.20.20.3 --tcp=%d:7 --endpoints=%s", port, rig.Endpoints4(1+s.randomBelow(9), 1+s.randomBelow(9), s.randomBelow(2)))
	switch s.randomBelow(5) {
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

// connectToChangedService opens a connection to a service that may or may not exist.
func (s *soak) connectToChangedService() {
	s.tryConnect(rig.Join("20.20.20.3", firstChurned+s.randomBelow(churnedPorts)), "connections to services that are changed")
}

// changeDaemon stops or kills the daemon, and starts it.
func (s *soak) changeDaemon() {
	if s.randomBelow(2) == 0 {
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

// deleteChurned deletes the changed services, ends the drain, and removes connections of stopped
// servers.
func (s *soak) deleteChurned() {
	s.T.Helper()
	for port := firstChurned; port < firstChurned+churnedPorts; port++ {
		_, _ = s.Command("delete", "lb", "20.20.20.3", fmt.Sprintf("--tcp=%d", port)) // it may not exist
	}
	s.undrain()
	s.Loxicmd("kill ct --vip=20.20.20.6")
	if out := s.Loxicmd("get lb"); strings.Contains(out, "20.20.20.3") {
		s.T.Errorf("deleted services are still listed:\n%s", out)
	}
}

// checkNoConnections returns an error unless the connection table is empty.
func (s *soak) checkNoConnections() error {
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
	for _, e := range list { // except for sockets: the number of API clients changes
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
			out[filepath.Base(path)] = countKeys(m)
		}
		_ = m.Close()
	}
	return out
}

// countKeys counts a map's keys.
func countKeys(m *ebpf.Map) (n int) {
	key := make([]byte, m.KeySize())
	for err := m.NextKey(nil, key); err == nil; err = m.NextKey(key, key) {
		n++
	}
	return n
}

// checkNotGrown returns an error if a count has grown.
func checkNotGrown(before, now map[string]int) error {
	var errs []error
	for name, n := range now {
		if n > before[name] {
			errs = append(errs, fmt.Errorf("%s: %d, want at most %d", name, n, before[name]))
		}
	}
	return errors.Join(errs...)
}
