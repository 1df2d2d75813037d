package datapath

import (
	"testing"
	"time"

	"loxilb/internal/compile"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/datapath/dptest"
)

// TestRateAhead: a packet that began a tick before the one that has taken the last token gets none. Otherwise each tick would fill the
// bucket as soon as two CPUs have packets of one service.
func TestRateAhead(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp max-rate=10 refuse=drop endpoints=192.0.2.1:8080")
	states, id := o.d.collection.Maps.ServiceStates, serviceID(t, o)
	ahead := dptest.Jiffies(t) + o.d.collection.Jiffies(time.Second)/2
	if err := states.Put(id, bpf.TcServiceState{Opens: bpf.TcTokenBucket{Since: ahead}}); err != nil {
		t.Fatal(err)
	}
	o.open(0)
	var state bpf.TcServiceState
	if err := states.Lookup(id, &state); err != nil {
		t.Fatal(err)
	}
	if len(dptest.Connections(t, o.d.collection)) > 0 {
		t.Errorf("a connection is opened without a token: %+v", state.Opens)
	}
	if state.Opens.Since != ahead {
		t.Errorf("the bucket's time is %d; it was %d", state.Opens.Since, ahead)
	}
}

// serviceID is the number of the opener's service.
func serviceID(t testing.TB, o *opener) uint32 {
	t.Helper()
	var row bpf.TcService
	if err := o.d.collection.Maps.Services.Lookup(compile.Key(o.service.Key), &row); err != nil {
		t.Fatal(err)
	}
	return row.Id
}
