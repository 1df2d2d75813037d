package connections

import (
	"testing"
	"time"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/test/await"
	"loxilb/test/dptest"
	"loxilb/test/dptest/programs"
)

// TestTimer checks that connections that expire after the daemon was killed are freed, and no
// longer counted, although no packet arrives. While a daemon keeps its promise to sweep, it alone
// frees them.
func TestTimer(t *testing.T) {
	t.Parallel()
	const flows = 1000
	s := loader.Settings{Connections: 20_000, PinDir: dptest.PinDir(t)}
	killed, end := openOnce(t, s)
	killed.die()
	send := killed.newFlows(t)
	for i := range flows {
		if err := send(i); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the next daemon exchanges the program
		if err := killed.startTimer(); err != nil {
			t.Fatal(err)
		}
	}
	p := programs.New(killed.shared, nil)
	if err := p.Age(time.Hour); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, killed, 2*flows)
	if err := p.SetSweepOverdue(1000); err != nil {
		t.Fatal(err)
	}
	end()

	d := open(t, s)
	await.True(t, 10*time.Second, "all connections are freed", func() bool { return len(dptest.Connections(t, d.shared)) == 0 })
	wantEntries(t, d, 0)
	var state bpf.TcEndpointState
	if err := d.shared.EndpointStates.Lookup(uint32(0), &state); err != nil {
		t.Fatal(err)
	}
	if state.Active != 0 || state.Tracked != 0 || state.Connections != flows {
		t.Errorf("the endpoint has %d active connections, %d tracked, and %d opened", state.Active, state.Tracked, state.Connections)
	}
}
