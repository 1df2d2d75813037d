package datapath

import (
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// TestMapUses checks that rows that packets and users fill are counted, also in hashes that are
// created on demand.
func TestMapUses(t *testing.T) {
	t.Parallel()
	const clients = 100
	o := newOpener(t, "10.0.0.1:80/tcp select=persist endpoints=192.0.2.1:80,192.0.2.2:80")
	for i := range clients {
		o.open(64 * i) // a client has 64 ports
	}
	list, err := o.d.MapUses()
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]report.MapUse{}
	for _, u := range list {
		uses[u.Name] = u
	}
	for name, want := range map[string]uint64{"connections": 2 * clients, "persists": clients, "services": 1, "endpoints": 2, "fragments": 0} {
		if u := uses[name]; u.Entries != want || u.Max < want || u.Max == 0 {
			t.Errorf("%s: %d of %d rows, want %d", name, u.Entries, u.Max, want)
		}
	}
	if !uses["fragments"].Recent || uses["persists"].Recent {
		t.Error("the maps that evict the least recently used rows are not marked as such")
	}
	if u := uses["drops"]; u.Max != 0 || u.Bytes < uint64(8*bpf.TcLimitMAX_REASONS) {
		t.Errorf("the map of drops has %d of %d rows and takes %d bytes", u.Entries, u.Max, u.Bytes)
	}
	// a group is 8 buckets
	if n, least := uses["connections"].Bytes, uint64(8*bpf.TcTableElementTABLE_ELEMENT); n < least {
		t.Errorf("connections take %d bytes, a group alone %d", n, least)
	}
}

// TestDropBytes checks that dropped packets count with their bytes under the same reason.
func TestDropBytes(t *testing.T) {
	t.Parallel()
	o := newOpener(t, "10.0.0.1:80/tcp endpoints=192.0.2.1:80:0")
	for i := range 3 {
		o.open(i)
	}
	drops, err := o.d.Drops()
	if err != nil {
		t.Fatal(err)
	}
	bytes, err := o.d.DropBytes()
	if err != nil {
		t.Fatal(err)
	}
	if drops["no-endpoint"] != 3 || bytes["no-endpoint"] != 3*140 {
		t.Errorf("no-endpoint counts %d packets and %d bytes", drops["no-endpoint"], bytes["no-endpoint"])
	}
	for reason := range drops {
		if _, ok := bytes[reason]; !ok || drops[reason] == 0 && bytes[reason] != 0 {
			t.Errorf("%s: %d bytes of %d packets", reason, bytes[reason], drops[reason])
		}
	}
}
