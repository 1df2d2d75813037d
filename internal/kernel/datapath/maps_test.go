package datapath

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"loxilb/internal/control/compile"
	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb"
	"loxilb/internal/lb/report"
)

// TestMapUses checks that rows that packets and users fill are counted, also in hashes that are
// created on demand.
func TestMapUses(t *testing.T) {
	t.Parallel()
	const clients = 100
	o := newOwnOpener(t, "10.0.0.1:80/tcp select=persist endpoints=192.0.2.1:80,192.0.2.2:80")
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

// TestMapUsesWhileChanging checks that changes do not wait until all rows are counted.
func TestMapUsesWhileChanging(t *testing.T) {
	t.Parallel()
	const clients, want, tries = 262_144, 5, 10
	d, err := Load(Config{Connections: clients})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	s, err := lb.ParseService("10.0.0.1:80/tcp select=persist endpoints=192.0.2.1:80")
	if err != nil {
		t.Fatal(err)
	}
	table := compile.Service(s, nil, 0, nil)
	changes := [][]Change{{{Key: table.Key, Table: &table}}, {{Key: table.Key}}}
	if err := d.Apply(changes[0])[0]; err != nil {
		t.Fatal(err)
	}
	keys, records := make([]bpf.TcPersistKey, clients), make([]bpf.TcPersistEntry, clients)
	for i := range keys {
		keys[i].Client.Word[3] = uint32(i)
	}
	if _, err := d.collection.Persists.Table().BatchUpdate(keys, records, nil); err != nil {
		t.Fatal(err)
	}
	var made atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	changing.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := d.Apply(changes[i&1])[0]; err != nil {
				t.Error(err)
			}
			made.Add(1)
		}
	})
	defer changing.Wait()
	defer cancel()
	most := int64(0)
	for range tries {
		d.collection.ForgetRowCounts()
		before := made.Load()
		if _, err := d.MapUses(); err != nil {
			t.Fatal(err)
		}
		if most = max(most, made.Load()-before); most >= want {
			return
		}
	}
	t.Errorf("at most %d changes were made while %d rows were counted", most, clients)
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
