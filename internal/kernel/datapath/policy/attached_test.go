package policy

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/test/dptest"
)

// none is Services and Rules without any.
type none struct{}

func (none) AttachToServices(map[bpf.TcServiceKey]bpf.TcAttachments) (bool, error) { return false, nil }

func (none) AttachToRules(map[uint64]bpf.TcAttachments) (bool, error) { return false, nil }

func open(t *testing.T, dir string) *Attached {
	t.Helper()
	c, err := loader.Open(loader.Settings{Connections: 1024, PinDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	a, err := OpenAttached(c, none{}, none{}, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestDropRetries checks that a row that could not be removed is removed by the next call.
func TestDropRetries(t *testing.T) {
	t.Parallel()
	newMap := func() *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	m, closed := newMap(), newMap()
	closed.Close()
	if err := m.Put(uint64(1), uint64(2)); err != nil {
		t.Fatal(err)
	}
	have := map[uint64]int{1: 2}
	if err := drop(have, nil, closed); err == nil || len(have) != 1 {
		t.Errorf("got %v and %v, want an error and the row", err, have)
	}
	var value uint64
	if err := drop(have, nil, m); err != nil || len(have) != 0 || m.Lookup(uint64(1), &value) == nil {
		t.Errorf("got %v and %v, want no error and no row", err, have)
	}
}

// TestKept checks that a policer that continues over a restart, or gets another rate, keeps the
// contents of its buckets, and that an unused one is removed.
func TestKept(t *testing.T) {
	t.Parallel()
	dir := dptest.PinDir(t)
	port := func(name string) map[int]bpf.TcAttachments {
		return map[int]bpf.TcAttachments{1: {Policers: [2]uint64{bpf.NameKey(name)}}}
	}
	want := &bpf.Attached{Policers: map[string]bpf.TcPolicer{"a": {Cost: 1, Burst: 10}, "b": {Cost: 2, Burst: 20}}, Ports: port("a")}
	a := open(t, dir)
	set := func() {
		t.Helper()
		if failed, err := a.SetAttached(want); err != nil || len(failed.Policers) > 0 {
			t.Fatalf("got %v %v, want no error, no failed.Policers", failed, err)
		}
	}
	set()
	taken := bpf.TcPolicer{Cost: 1, Burst: 10, Empty: 123, Excess: -4}
	if err := a.maps.Policers.Put(bpf.NameKey("a"), taken); err != nil {
		t.Fatal(err)
	}
	a = open(t, dir)
	if len(a.ports) != 1 || len(a.policers) != 2 {
		t.Errorf("after a start there are %v and %v", a.ports, a.policers)
	}
	want.Policers = map[string]bpf.TcPolicer{"a": {Cost: 3, Burst: 10}}
	set()
	taken.Cost = 3
	var row bpf.TcPolicer
	if err := a.maps.Policers.Lookup(bpf.NameKey("a"), &row); err != nil || row != taken {
		t.Errorf("%+v, %v; want %+v", row, err, taken)
	}
	if err := a.maps.Policers.Lookup(bpf.NameKey("b"), &row); err == nil {
		t.Error("a removed policer still exists")
	}
	want.Policers["a"] = bpf.TcPolicer{Cost: 3, Burst: 10, Flags: uint64(bpf.TcPolicerFlagPOLICER_PACKETS)}
	set()
	if err := a.maps.Policers.Lookup(bpf.NameKey("a"), &row); err != nil || row.Empty == taken.Empty {
		t.Errorf("%+v, %v: the bucket kept its content although its unit changed", row, err)
	}
	want = &bpf.Attached{}
	set()
	if n, err := a.Policed("a"); err != nil || n.Packets[0] > 0 || len(a.ports) > 0 {
		t.Errorf("got %+v, %v, %v, want no error, n.Packets[0] == 0, no a.ports", n, err, a.ports)
	}
}

// TestPutFull checks that the error for a full map has its size.
func TestPutFull(t *testing.T) {
	t.Parallel()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 32, MaxEntries: 1, Flags: unix.BPF_F_NO_PREALLOC})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	row := bpf.TcAttachments{Policers: [2]uint64{1, 1}}
	have := map[uint32]bpf.TcAttachments{}
	_, err = put(m, have, map[uint32]bpf.TcAttachments{1: row, 2: row}, "clients")
	if err == nil || !strings.Contains(err.Error(), "to clients: there is room for 1 with policers or mirrors") || len(have) != 1 {
		t.Errorf("got %v, %v, want an error, "+
			`"to clients: there is room for 1 with policers or mirrors" in the error, 1 element in have`,
			err, have)
	}
}
