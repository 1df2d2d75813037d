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

// killFlag is the flag that limits tests of kills to one step.
const killFlag = "kill"

const (
	heldPort, visitedPort   = 7, 77 // ports of services that are not changed
	heldConnections         = 10
	changedPort, secondPort = 80, 81 // ports of services that are changed
)

// victim is a rig whose daemon is killed, with clients that must not notice.
type victim struct {
	*rig.Rig
	crowd   *rig.Clients
	watcher *steps.Watcher
	wrap    []string
	packets map[int]float64 // the services' last counts, by port
	kills   map[string]int  // by the step that was about to happen
	pins    int             // before the first kill
}

func newVictim(t *testing.T, hook string) *victim {
	r := rig.New(t, rig.Options{Args: []string{"--attach", hook}})
	rig.ServeEcho(r)
	r.ServeNames()
	r.Loxicmd("create lb %s --tcp=%d:7 --endpoints=%s", rig.VIP4, heldPort, rig.Endpoints4())
	r.Loxicmd("create lb %s --tcp=%d:7 --endpoints=%s --mode=fullnat", rig.VIP6, visitedPort, rig.Endpoints6())
	v := &victim{Rig: r, crowd: rig.NewClients(r), packets: map[int]float64{}, kills: map[string]int{}}
	var err error
	if v.watcher, err = steps.Listen(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.watcher.Close() })
	if v.wrap, err = v.watcher.Wrap(); err != nil {
		t.Fatal(err)
	}
	return v
}

// newCrowdedVictim returns a victim with held connections, and others that come and go.
func newCrowdedVictim(t *testing.T, hook string) *victim {
	t.Helper()
	v := newVictim(t, hook)
	v.crowd.Hold(rig.Join(rig.VIP4, heldPort), heldConnections)
	v.crowd.OpenRepeatedly(rig.Join(rig.VIP6, visitedPort))
	return v
}

// watched runs f while it counts the steps of the daemon or command that f starts, and kills that
// process before step number kill (0: never). The result of f is ignored after a kill.
func (v *victim) watched(kill int, f func() error) steps.Life {
	v.T.Helper()
	type result struct {
		steps.Life
		err error
	}
	followed := make(chan result, 1)
	go func() {
		life, err := v.watcher.Follow(kill)
		followed <- result{life, err}
	}()
	v.Wrap(v.wrap...)
	failed := f()
	v.Kill()
	v.Wrap()
	life := <-followed
	if life.err != nil {
		v.T.Fatal(errors.Join(life.err, failed))
	}
	if failed != nil && !life.Kill {
		v.T.Fatalf("got %v, want failed == nil or life.Kill", failed)
	}
	if life.Kill {
		v.kills[life.Last]++
	}
	return life.Life
}

// change is what a user or the network changes, and the changed services afterwards.
type change struct {
	do    func(*victim) error
	after map[int]string // by port: endpoints and weights
}

func command(format string, args ...any) func(*victim) error {
	return func(v *victim) error {
		_, err := v.Command(strings.Fields(fmt.Sprintf(format, args...))...)
		return err
	}
}

// changes covers all that the daemon does to the data path's tables and hooks.
func changes() []change {
	one, all := "31.31.31.1@1", "17.17.17.1@3 31.31.31.1@1 32.32.32.1@2"
	return []change{
		{command("create lb %s --tcp=%d:5001 --endpoints=31.31.31.1:1", rig.VIP4, changedPort), map[int]string{changedPort: one}},
		{command("create lb %s --tcp=%d:5001 --endpoints=%s", rig.VIP4, changedPort, rig.Endpoints4(1, 2, 3)), map[int]string{changedPort: all}},
		{
			command("create lb 20.20.20.2 --tcp=%d:5001 --endpoints=%s --mode=fullnat --select=hash", secondPort, rig.Endpoints4(1, 2, 3)),
			map[int]string{changedPort: all, secondPort: all},
		},
		{(*victim).plug, map[int]string{changedPort: all, secondPort: all}},
		{(*victim).unplug, map[int]string{changedPort: all, secondPort: all}},
		{command("create lb %s --tcp=%d:5001 --endpoints=31.31.31.1:1", rig.VIP4, changedPort), map[int]string{changedPort: one, secondPort: all}},
		{command("delete lb 20.20.20.2 --tcp=%d", secondPort), map[int]string{changedPort: one}},
		{command("delete lb %s --tcp=%d", rig.VIP4, changedPort), map[int]string{}},
	}
}

// live runs one life of a daemon: it starts, makes all changes, and ends. live also returns the
// states that the changed services may have afterwards.
func (v *victim) live(kill int) (steps.Life, []map[int]string) {
	v.T.Helper()
	done := 0
	list := changes()
	life := v.watched(kill, func() error {
		ctx, cancel := context.WithTimeout(v.T.Context(), rig.StartPatience)
		defer cancel()
		if err := v.Start(ctx); err != nil {
			return err
		}
		for _, c := range list {
			if err := c.do(v); err != nil {
				return err
			}
			done++
		}
		v.Stop()
		return nil
	})
	states := []map[int]string{{}}
	for _, c := range list {
		states = append(states, c.after)
	}
	return life, states[done:min(done+2, len(states))]
}

const lateInterface = "late"

// plug adds an interface, and waits until the program is attached.
func (v *victim) plug() error {
	late := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: lateInterface + "-peer"}
	late.Name = lateInterface
	if err := v.LB.Netlink().LinkAdd(late); err != nil {
		return err
	}
	if err := errors.Join(v.LB.Up(lateInterface), v.LB.Up(lateInterface+"-peer")); err != nil {
		return err
	}
	return v.whileAlive(func(status string) bool {
		_, row, found := strings.Cut(status, "| "+lateInterface+" ")
		row, _, _ = strings.Cut(row, "\n")
		return found && strings.Contains(row, "applied")
	})
}

// unplug removes the interface, and waits until nothing is left of it.
func (v *victim) unplug() error {
	link, err := v.LB.Netlink().LinkByName(lateInterface)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := v.LB.Netlink().LinkDel(link); err != nil {
		return err
	}
	return v.whileAlive(func(status string) bool { return !strings.Contains(status, "| "+lateInterface) })
}

// whileAlive waits until isDone reports true for the interface's status. It returns an error if the
// daemon dies first.
func (v *victim) whileAlive(isDone func(status string) bool) error {
	var status string
	for deadline := time.Now().Add(rig.Patience); time.Now().Before(deadline); {
		var err error
		if status, err = v.Command("get", "status", "--kind=interface"); err == nil && isDone(status) {
			return nil
		}
		select {
		case <-v.Done():
			return errors.New("the daemon is dead")
		case <-time.After(rig.Pace):
		}
	}
	return fmt.Errorf("the daemon has not followed interface %s in %v: %s", lateInterface, rig.Patience, status)
}

// recover starts the daemon and checks that everything is there. The changed services must have one
// of these states.
func (v *victim) recover(states []map[int]string) {
	v.T.Helper()
	v.Restart()
	if out := v.Loxicmd("get status --failed"); strings.Contains(out, "failed") {
		v.T.Errorf("after a start:\n%s", out)
	}
	got := v.changed()
	if !slices.ContainsFunc(states, func(s map[int]string) bool { return maps.Equal(s, got) }) {
		v.T.Errorf("the services are %v, want one of %v", got, states)
	}
	for port, vip := range map[int]string{changedPort: rig.VIP4, secondPort: "20.20.20.2"} {
		if got[port] == "" {
			v.wantNone(rig.Join(vip, port))
		} else if _, err := v.Ask(rig.Join(vip, port)); err != nil {
			v.T.Errorf("service %s: %v", rig.Join(vip, port), err)
		}
	}
	v.crowd.AwaitAnswers()
	v.wantCounts()
	if err := v.crowd.Failure(); err != nil {
		v.T.Fatal(err)
	}
}

// clean removes the changed services and the interface.
func (v *victim) clean() {
	v.T.Helper()
	for port := range v.changed() {
		v.Loxicmd("delete lb %s --tcp=%d", map[int]string{changedPort: rig.VIP4, secondPort: "20.20.20.2"}[port], port)
	}
	if err := v.unplug(); err != nil {
		v.T.Fatal(err)
	}
	labtest.Eventually(v.T, rig.Patience, func(context.Context) error {
		if now := v.Pins(); len(now) != v.pins {
			return fmt.Errorf("%d pins, there were %d: %v", len(now), v.pins, now)
		}
		return nil
	})
}

// changed returns the endpoints and weights of the changed services, by port.
func (v *victim) changed() map[int]string {
	v.T.Helper()
	resp, err := v.LB.HTTPClient(rig.Patience).Get("http://127.0.0.1:11111/netlox/v1/config/loadbalancer/all")
	if err != nil {
		v.T.Fatal(err)
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
		v.T.Fatalf("got %v %v, want no error, code 200", resp.Status, err)
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
		v.T.Errorf("%d services that nobody changes, want 2", len(all.LbAttr)-len(out))
	}
	return out
}

// wantNone fails the test if a connection opens.
func (v *victim) wantNone(address string) {
	v.T.Helper()
	ctx, cancel := context.WithTimeout(v.T.Context(), 50*time.Millisecond)
	defer cancel()
	if c, err := v.Client.DialContext(ctx, "tcp", address); err == nil {
		_ = c.Close()
		v.T.Errorf("%s answers", address)
	}
}

// wantCounts checks that the services have counted each connection of the clients once, that packet
// counts have not decreased, and that no packet was dropped.
func (v *victim) wantCounts() {
	v.T.Helper()
	v.crowd.PauseOpening(func(opened map[string]int) {
		for port, vip := range map[int]string{heldPort: rig.VIP4, visitedPort: rig.VIP6} {
			service := "service=" + rig.Join(vip, port) + "/tcp"
			if got, want := v.Metric("service_connections_total", service), opened[rig.Join(vip, port)]; int(got) != want {
				v.T.Errorf("%s has counted %v connections, the clients %d", service, got, want)
			}
			packets := v.Metric("service_packets_total", service, "dir=in")
			if packets < v.packets[port] {
				v.T.Errorf("%s has counted %v packets, %v before", service, packets, v.packets[port])
			}
			v.packets[port] = packets
		}
		if active := v.Metric("service_connections_active", "service="+rig.Join(rig.VIP4, heldPort)+"/tcp"); active != heldConnections {
			v.T.Errorf("%v connections are held, want %d", active, heldConnections)
		}
	})
}

// TestKilled kills the daemon before some of its steps, from its start to its end. Clients notice
// nothing, and the next start has all services, connections and counts. `make test-long` kills it
// before each step.
//
// P1 No client sees an error while the daemon is killed at any step of its life: held connections
// and new ones work, and the next start has every confirmed service, connection and count
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			v := newCrowdedVictim(t, hook)
			v.pins = len(v.Pins())
			v.Stop()
			life, states := v.live(0)
			v.recover(states)
			v.clean()
			for _, at := range killsOf(t, life.Steps, 4) {
				v.kill(at)
			}
			if err := v.crowd.Finish(); err != nil {
				t.Error(err)
			}
			t.Logf("of %d steps, killed before %v; the slowest of %d answers took %v", life.Steps, v.kills, v.crowd.Answers(), v.crowd.Slowest.Round(time.Millisecond))
		})
	}
}

// kill kills the daemon before a step of its life.
func (v *victim) kill(at int) {
	v.T.Helper()
	v.Stop()
	life, states := v.live(at)
	v.recover(states)
	v.blame(at, life)
	v.clean()
}

// blame logs the step if the test has failed.
func (v *victim) blame(at int, life steps.Life) {
	v.T.Helper()
	if v.T.Failed() {
		v.T.Fatalf("killed before step %d, %s (-%s=%d kills there again)", at, life.Last, killFlag, at)
	}
}

// TestKilledFirst kills a daemon before some steps of its first start, and of --detach. A start
// repairs what either has left, and --detach leaves nothing.
//
// P2 A start repairs whatever a killed first start or `loxilb --detach` has left
func TestKilledFirst(t *testing.T) {
	t.Parallel()
	for _, hook := range []string{"tcx", "clsact"} {
		t.Run(hook, func(t *testing.T) {
			t.Parallel()
			v := newVictim(t, hook)
			detach := v.watched(0, v.DetachAll)
			start := v.watched(0, func() error { return v.Start(t.Context()) })
			for _, at := range killsOf(t, max(detach.Steps, start.Steps), 2) {
				v.Restart()
				life := v.watched(at, v.DetachAll)
				v.Restart()
				v.wantServed()
				v.blame(at, life)
				if err := v.DetachAll(); err != nil {
					t.Fatal(err)
				}
				v.wantNothing()
				life = v.watched(at, func() error { return v.Start(t.Context()) })
				v.Restart()
				v.wantServed()
				v.blame(at, life)
				v.Stop()
			}
			t.Logf("of %d steps of --detach and %d of a start, killed before %v", detach.Steps, start.Steps, v.kills)
		})
	}
}

// wantServed checks that both services work.
func (v *victim) wantServed() {
	v.T.Helper()
	if out := v.Loxicmd("get status --failed"); strings.Contains(out, "failed") {
		v.T.Errorf("after a start:\n%s", out)
	}
	for _, address := range []string{rig.Join(rig.VIP4, heldPort), rig.Join(rig.VIP6, visitedPort)} {
		conn, err := v.crowd.Dial(address)
		if err == nil {
			err = errors.Join(rig.Exchange(conn, "x"), conn.Close())
		}
		if err != nil {
			v.T.Errorf("%s: %v", address, err)
		}
	}
	if page, err := v.Metrics(); err == nil && v.T.Failed() {
		v.T.Log(page)
	}
}

// wantNothing checks that nothing of the daemon is left in the kernel.
func (v *victim) wantNothing() {
	v.T.Helper()
	if pins := v.Pins(); len(pins) > 0 {
		v.T.Errorf("still pinned: %v", pins)
	}
	for _, vip := range []string{rig.VIP4, rig.VIP6} {
		if v.HasAddress(vip) {
			v.T.Errorf("%s is still there", vip)
		}
		v.wantNone(rig.Join(vip, map[string]int{rig.VIP4: heldPort, rig.VIP6: visitedPort}[vip]))
	}
	for _, n := range netnstest.StandardNetworks() {
		if out, err := v.LB.Run("tc", "filter", "show", "dev", n.Host, "ingress"); err != nil || out != "" {
			v.T.Errorf("filters are left at %s: %s %v", n.Host, out, err)
		}
	}
}

// killsOf returns the steps before which to kill: some of all in a quick test, each of them in a
// long one, or the one of the flag.
func killsOf(t *testing.T, all, some int) (list []int) {
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
	for i := range some { // one in each part, so no phase is left out
		from, to := i*all/some, (i+1)*all/some
		list = append(list, 1+from+random.IntN(max(to-from, 1)))
	}
	return list
}
