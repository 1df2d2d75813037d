package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"loxilb/test/net/rig"
	"loxilb/test/netnstest"
	"loxilb/test/netnstest/labtest"
	"loxilb/test/steps"
)

// killFlag is the flag that makes tests kill the daemon before one given step only.
const killFlag = "kill"

const (
	heldPort, shortPort     = 7, 77 // of services with held and with short connections; not changed
	heldConnections         = 10
	changedPort, secondPort = 80, 81 // of services that are changed
)

// killRig is a rig whose daemon is killed before chosen steps, with clients that must see no error.
type killRig struct {
	*rig.Rig
	clients *rig.Clients
	watcher *steps.Watcher
	wrap    []string
	packets map[int]float64 // last packet counts of services, by port
	kills   map[string]int  // number of kills, by the name of the next step
	pins    int             // number of pins before the first kill
}

func newKillRig(t *testing.T, hook string) *killRig {
	r := rig.New(t, rig.Options{Args: []string{"--attach", hook}})
	rig.ServeEcho(r)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=%d:7 --endpoints=%s", rig.VIP4, heldPort, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=%d:7 --endpoints=%s --mode=fullnat", rig.VIP6, shortPort, rig.Endpoints6())
	k := &killRig{Rig: r, clients: rig.NewClients(r), packets: map[int]float64{}, kills: map[string]int{}}
	var err error
	if k.watcher, err = steps.Listen(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.watcher.Close() })
	if k.wrap, err = k.watcher.Wrap(); err != nil {
		t.Fatal(err)
	}
	return k
}

// newKillRigWithLoad returns a killRig with held connections, and clients that open short ones.
func newKillRigWithLoad(t *testing.T, hook string) *killRig {
	t.Helper()
	k := newKillRig(t, hook)
	k.clients.Hold(rig.Join(rig.VIP4, heldPort), heldConnections)
	k.clients.OpenRepeatedly(rig.Join(rig.VIP6, shortPort))
	return k
}

// runUntilStep calls f, which starts the daemon or a command. It counts the steps of that process,
// and kills it before step number kill (0: never). It ignores the result of f after a kill.
func (k *killRig) runUntilStep(kill int, f func() error) steps.Record {
	k.T.Helper()
	type result struct {
		steps.Record
		err error
	}
	followed := make(chan result, 1)
	go func() {
		record, err := k.watcher.Follow(kill)
		followed <- result{record, err}
	}()
	k.Wrap(k.wrap...)
	failed := f()
	k.Kill()
	k.Wrap()
	got := <-followed
	if got.err != nil {
		k.T.Fatal(errors.Join(got.err, failed))
	}
	if failed != nil && !got.Killed {
		k.T.Fatalf("got %v, want failed == nil or a kill", failed)
	}
	if got.Killed {
		k.kills[got.Last]++
	}
	return got.Record
}

// change is a change by a user or of the network, and the state of the changed services afterwards.
type change struct {
	apply    func(*killRig) error
	services map[int]string // endpoints and weights, by port
}

func command(format string, args ...any) func(*killRig) error {
	return func(k *killRig) error {
		_, err := k.Command(strings.Fields(fmt.Sprintf(format, args...))...)
		return err
	}
}

// changes returns changes that make the daemon write all tables of the data path, and attach and
// detach programs.
func changes() []change {
	one, all := "31.31.31.1@1", "17.17.17.1@3 31.31.31.1@1 32.32.32.1@2"
	return []change{
		{command("create lb %s --tcp=%d:5001 --endpoints=31.31.31.1:1", rig.VIP4, changedPort), map[int]string{changedPort: one}},
		{command("create lb %s --tcp=%d:5001 --endpoints=%s", rig.VIP4, changedPort, rig.Endpoints4(1, 2, 3)), map[int]string{changedPort: all}},
		{
			command("create lb 20.20.20.2 --tcp=%d:5001 --endpoints=%s --mode=fullnat --select=hash", secondPort, rig.Endpoints4(1, 2, 3)),
			map[int]string{changedPort: all, secondPort: all},
		},
		{(*killRig).addInterface, map[int]string{changedPort: all, secondPort: all}},
		{(*killRig).removeInterface, map[int]string{changedPort: all, secondPort: all}},
		{command("create lb %s --tcp=%d:5001 --endpoints=31.31.31.1:1", rig.VIP4, changedPort), map[int]string{changedPort: one, secondPort: all}},
		{command("delete lb 20.20.20.2 --tcp=%d", secondPort), map[int]string{changedPort: one}},
		{command("delete lb %s --tcp=%d", rig.VIP4, changedPort), map[int]string{}},
	}
}

// runOnce starts the daemon, makes all changes, and stops it. It also returns the states that the
// changed services may have afterwards.
func (k *killRig) runOnce(kill int) (steps.Record, []map[int]string) {
	k.T.Helper()
	done := 0
	list := changes()
	record := k.runUntilStep(kill, func() error {
		ctx, cancel := context.WithTimeout(k.T.Context(), rig.StartPatience)
		defer cancel()
		if err := k.Start(ctx); err != nil {
			return err
		}
		for _, c := range list {
			if err := c.apply(k); err != nil {
				return err
			}
			done++
		}
		k.Stop()
		return nil
	})
	states := []map[int]string{{}}
	for _, c := range list {
		states = append(states, c.services)
	}
	return record, states[done:min(done+2, len(states))]
}

const addedInterface = "late"

// addInterface adds an interface, and waits until the daemon has attached its program.
func (k *killRig) addInterface() error {
	late := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: addedInterface + "-peer"}
	late.Name = addedInterface
	if err := k.LB.Netlink().LinkAdd(late); err != nil {
		return err
	}
	if err := errors.Join(k.LB.Up(addedInterface), k.LB.Up(addedInterface+"-peer")); err != nil {
		return err
	}
	return k.awaitInterface(func(status string) bool {
		_, row, found := strings.Cut(status, "| "+addedInterface+" ")
		row, _, _ = strings.Cut(row, "\n")
		return found && strings.Contains(row, "applied")
	})
}

// removeInterface removes the interface, and waits until the daemon has no status of it.
func (k *killRig) removeInterface() error {
	link, err := k.LB.Netlink().LinkByName(addedInterface)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := k.LB.Netlink().LinkDel(link); err != nil {
		return err
	}
	return k.awaitInterface(func(status string) bool { return !strings.Contains(status, "| "+addedInterface) })
}

// awaitInterface waits until isDone reports true for the interface's status. It returns an error if
// the daemon dies first.
func (k *killRig) awaitInterface(isDone func(status string) bool) error {
	var status string
	for deadline := time.Now().Add(rig.Patience); time.Now().Before(deadline); {
		var err error
		if status, err = k.Command("get", "status", "--kind=interface"); err == nil && isDone(status) {
			return nil
		}
		select {
		case <-k.Done():
			return errors.New("the daemon has ended")
		case <-time.After(rig.Pace):
		}
	}
	return fmt.Errorf("the status of interface %s is wrong after %v: %s", addedInterface, rig.Patience, status)
}

// checkRecovery starts the daemon, and checks that no object has failed, and that connections and
// counts are complete. The changed services must have one of the given states.
func (k *killRig) checkRecovery(states []map[int]string) {
	k.T.Helper()
	k.Restart()
	if out := k.Loxicmd("get status --failed"); strings.Contains(out, "failed") {
		k.T.Errorf("after a start:\n%s", out)
	}
	got := k.changedServices()
	if !slices.ContainsFunc(states, func(s map[int]string) bool { return maps.Equal(s, got) }) {
		k.T.Errorf("the services are %v, want one of %v", got, states)
	}
	for port, vip := range map[int]string{changedPort: rig.VIP4, secondPort: "20.20.20.2"} {
		if got[port] == "" {
			k.wantNotOpened(rig.Join(vip, port))
		} else if _, err := k.Ask(rig.Join(vip, port)); err != nil {
			k.T.Errorf("service %s: %v", rig.Join(vip, port), err)
		}
	}
	k.clients.AwaitAnswers()
	k.wantCounts()
	if err := k.clients.Failure(); err != nil {
		k.T.Fatal(err)
	}
}

// deleteChanges removes the changed services and the added interface.
func (k *killRig) deleteChanges() {
	k.T.Helper()
	for port := range k.changedServices() {
		k.Loxicmd("delete lb %s --tcp=%d", map[int]string{changedPort: rig.VIP4, secondPort: "20.20.20.2"}[port], port)
	}
	if err := k.removeInterface(); err != nil {
		k.T.Fatal(err)
	}
	labtest.Eventually(k.T, rig.Patience, func(context.Context) error {
		if now := k.Pins(); len(now) != k.pins {
			return fmt.Errorf("%d pins, want %d: %v", len(now), k.pins, now)
		}
		return nil
	})
}

// changedServices returns the endpoints and weights of the changed services, by port.
func (k *killRig) changedServices() map[int]string {
	k.T.Helper()
	resp, err := k.LB.HTTPClient(rig.Patience).Get("http://127.0.0.1:11111/netlox/v1/config/loadbalancer/all")
	if err != nil {
		k.T.Fatal(err)
	}
	defer resp.Body.Close()
	var all struct {
		LbAttr []struct {
			ServiceArguments struct{ Port int }
			Endpoints        []struct {
				EndpointIP string
				Weight     int
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || resp.StatusCode != http.StatusOK {
		k.T.Fatalf("got %v %v, want no error, code 200", resp.Status, err)
	}
	out := map[int]string{}
	for _, s := range all.LbAttr {
		if s.ServiceArguments.Port != changedPort && s.ServiceArguments.Port != secondPort {
			continue
		}
		var list []string
		for _, e := range s.Endpoints {
			list = append(list, fmt.Sprintf("%s@%d", e.EndpointIP, e.Weight))
		}
		slices.Sort(list)
		out[s.ServiceArguments.Port] = strings.Join(list, " ")
	}
	if len(all.LbAttr)-len(out) != 2 {
		k.T.Errorf("%d unchanged services, want 2", len(all.LbAttr)-len(out))
	}
	return out
}

// wantNotOpened fails the test if a connection can be opened.
func (k *killRig) wantNotOpened(address string) {
	k.T.Helper()
	ctx, cancel := context.WithTimeout(k.T.Context(), 50*time.Millisecond)
	defer cancel()
	if c, err := k.Client.DialContext(ctx, "tcp", address); err == nil {
		_ = c.Close()
		k.T.Errorf("%s answers", address)
	}
}

// wantCounts checks that the services have counted each connection of the clients once, that packet
// counts have not decreased, and that no packet was dropped.
func (k *killRig) wantCounts() {
	k.T.Helper()
	k.clients.PauseOpening(func(opened map[string]int) {
		for port, vip := range map[int]string{heldPort: rig.VIP4, shortPort: rig.VIP6} {
			service := "service=" + rig.Join(vip, port) + "/tcp"
			if got, want := k.Metric("service_connections_total", service), opened[rig.Join(vip, port)]; int(got) != want {
				k.T.Errorf("%s has counted %v connections, the clients %d", service, got, want)
			}
			packets := k.Metric("service_packets_total", service, "dir=in")
			if packets < k.packets[port] {
				k.T.Errorf("%s: the packet count has decreased from %v to %v", service, k.packets[port], packets)
			}
			k.packets[port] = packets
		}
		if active := k.Metric("service_connections_active", "service="+rig.Join(rig.VIP4, heldPort)+"/tcp"); active != heldConnections {
			k.T.Errorf("%v connections are held, want %d", active, heldConnections)
		}
	})
}

// TestKilled kills the daemon before some of its steps, from its start to its end. No client sees
// an error, and the next start has all services, connections and counts. `make test-long` kills the
// daemon before each step.
//
// P1 No client sees an error while the daemon is killed at any step of its run: held and new
// connections work, and the next start has every confirmed service, connection and count
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			k := newKillRigWithLoad(t, hook)
			k.pins = len(k.Pins())
			k.Stop()
			record, states := k.runOnce(0)
			k.checkRecovery(states)
			k.deleteChanges()
			for _, at := range killSteps(t, record.Steps, 4) {
				k.killAt(at)
			}
			if err := k.clients.Finish(); err != nil {
				t.Error(err)
			}
			t.Logf("of %d steps, killed before %v; the slowest of %d answers took %v", record.Steps, k.kills, k.clients.Answers(), k.clients.Slowest.Round(time.Millisecond))
		})
	}
}

// killAt kills the daemon before the given step, and checks that it recovers.
func (k *killRig) killAt(at int) {
	k.T.Helper()
	k.Stop()
	record, states := k.runOnce(at)
	k.checkRecovery(states)
	k.stopIfFailed(at, record)
	k.deleteChanges()
}

// stopIfFailed ends the test if it has failed, and logs the step.
func (k *killRig) stopIfFailed(at int, record steps.Record) {
	k.T.Helper()
	if k.T.Failed() {
		k.T.Fatalf("killed before step %d, %s (-%s=%d repeats it)", at, record.Last, killFlag, at)
	}
}

// TestKilledFirst kills a daemon before some steps of its first start, and of --detach. The next
// start repairs the state that either has left, and --detach removes everything.
//
// P2 A start repairs the state that a killed first start or `loxilb --detach` has left
func TestKilledFirst(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			k := newKillRig(t, hook)
			detach := k.runUntilStep(0, k.DetachAll)
			start := k.runUntilStep(0, func() error { return k.Start(t.Context()) })
			for _, at := range killSteps(t, max(detach.Steps, start.Steps), 2) {
				k.Restart()
				record := k.runUntilStep(at, k.DetachAll)
				k.Restart()
				k.wantBothServices()
				k.stopIfFailed(at, record)
				if err := k.DetachAll(); err != nil {
					t.Fatal(err)
				}
				k.wantDetached()
				record = k.runUntilStep(at, func() error { return k.Start(t.Context()) })
				k.Restart()
				k.wantBothServices()
				k.stopIfFailed(at, record)
				k.Stop()
			}
			t.Logf("of %d steps of --detach and %d of a start, killed before %v", detach.Steps, start.Steps, k.kills)
		})
	}
}

// wantBothServices checks that both unchanged services answer.
func (k *killRig) wantBothServices() {
	k.T.Helper()
	if out := k.Loxicmd("get status --failed"); strings.Contains(out, "failed") {
		k.T.Errorf("after a start:\n%s", out)
	}
	for _, address := range []string{rig.Join(rig.VIP4, heldPort), rig.Join(rig.VIP6, shortPort)} {
		conn, err := k.clients.Dial(address)
		if err == nil {
			err = errors.Join(rig.Exchange(conn, "x"), conn.Close())
		}
		if err != nil {
			k.T.Errorf("%s: %v", address, err)
		}
	}
	if page, err := k.Metrics(); err == nil && k.T.Failed() {
		k.T.Log(page)
	}
}

// wantDetached checks that the kernel has no pins, VIPs, filters and services of the daemon.
func (k *killRig) wantDetached() {
	k.T.Helper()
	if pins := k.Pins(); len(pins) > 0 {
		k.T.Errorf("still pinned: %v", pins)
	}
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		if k.HasAddress(vip) {
			k.T.Errorf("VIP %s still exists", vip)
		}
		k.wantNotOpened(rig.Join(vip, map[string]int{rig.VIP4: heldPort, rig.VIP6: shortPort}[vip]))
	}
	for _, n := range netnstest.StandardNetworks() {
		if out, err := k.LB.Run("tc", "filter", "show", "dev", n.Host, "ingress"); err != nil || out != "" {
			k.T.Errorf("%s still has filters: %s %v", n.Host, out, err)
		}
	}
}

// killSteps returns the numbers of steps before which to kill: some of all steps, every step in a
// long test, or the step of killFlag.
func killSteps(t *testing.T, all, some int) (list []int) {
	if at := flag.Lookup(killFlag).Value.(flag.Getter).Get().(int); at != 0 {
		return []int{at}
	}
	if rig.IsLong() {
		for at := range all {
			list = append(list, at+1)
		}
		return list
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range some { // one in each part, so tests cover all phases
		from, to := i*all/some, (i+1)*all/some
		list = append(list, 1+from+random.IntN(max(to-from, 1)))
	}
	return list
}
