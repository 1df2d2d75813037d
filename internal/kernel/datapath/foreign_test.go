package datapath

import (
	"net/netip"
	"slices"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
	"loxilb/internal/kernel/datapath/testrun"
	"loxilb/test/dptest"
)

// verdictOf returns what the program at the tc hook does with a frame.
func verdictOf(t *testing.T, d *Datapath, frame []byte) testrun.Verdict {
	t.Helper()
	out, err := d.TestRun().Run(testrun.Input{Frame: frame, Ifindex: 1})
	if err != nil {
		t.Fatal(err)
	}
	return out.Verdict
}

// TestMissingBit checks that the address filter decides: a connection without its bits is not
// found, so packet scripts and the model fail if one is missing. Either of the two bits is enough.
func TestMissingBit(t *testing.T) {
	t.Parallel()
	d, err := Load(Config{Connections: 1024, ForeignFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	frame := ring(t, d, 2, false)(0)
	src, dst := bpf.Addr(netip.MustParseAddr("10.0.0.1")), bpf.Addr(netip.MustParseAddr("10.0.0.2"))
	for name, c := range map[string]struct {
		key  rows.FilterKey
		want testrun.Verdict
	}{
		"nothing":                       {rows.PortKey(dst, bpf.Port(443)), testrun.Next},
		"destination":                   {rows.PortKey(dst, bpf.Port(1)), testrun.Redirect},
		"source":                        {rows.PortKey(src, bpf.Port(ringPorts)), testrun.Redirect},
		"all ports of the destination":  {rows.AllPortsKey(dst), testrun.Redirect},
		"all ports of the source":       {rows.AllPortsKey(src), testrun.Redirect},
		"its port at every address":     {rows.PortKey(bpf.TcIpAddr{}, bpf.Port(1)), testrun.Redirect},
		"another port at every address": {rows.PortKey(bpf.TcIpAddr{}, bpf.Port(443)), testrun.Next},
		"all ports of another address":  {rows.AllPortsKey(bpf.Addr(netip.MustParseAddr("10.0.0.3"))), testrun.Next},
	} {
		filter := emptyFilter(t, d)
		filter.Add(c.key)
		if got := verdictOf(t, d, frame); got != c.want {
			t.Errorf("the filter has %s: the verdict is %d, not %d", name, got, c.want)
		}
	}
}

// emptyFilter replaces the contents of the address filter by an empty filter.
func emptyFilter(t *testing.T, d *Datapath) *rows.Filter {
	t.Helper()
	if err := d.collection.Maps.BloomFilter.Put(uint32(0), make([]byte, d.collection.Maps.BloomFilter.ValueSize())); err != nil {
		t.Fatal(err)
	}
	filter, err := rows.OpenFilter(d.collection.Maps.BloomFilter, true)
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

// TestFilterAfterRestart checks that connections of an earlier process are always found, including
// those that no row refers to.
func TestFilterAfterRestart(t *testing.T) {
	t.Parallel()
	cfg := Config{Connections: 1024, PinDir: dptest.PinDir(t), ForeignFirst: true}
	before, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	frame := ring(t, before, 2, true)(0)
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	d, err := Load(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for sweeps := range 3 {
		if full := filterIsFull(t, d); full != (sweeps == 0) {
			t.Errorf("after %d sweeps all of the filter is set: %v", sweeps, full)
		}
		if verdictOf(t, d, frame) == testrun.Next {
			t.Errorf("after %d sweeps a packet of a connection passes", sweeps)
		}
		if err := d.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// filterIsFull reports whether the filter lets every packet through.
func filterIsFull(t *testing.T, d *Datapath) bool {
	t.Helper()
	var filter bpf.TcBloom
	if err := d.collection.Maps.BloomFilter.Lookup(uint32(0), &filter); err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc(filter.Bits[:], func(word uint64) bool { return word != ^uint64(0) })
}
