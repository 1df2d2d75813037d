package datapath

import (
	"strings"
	"testing"

	"loxilb/internal/compile"
	"loxilb/internal/datapath/bpf"
	"loxilb/internal/lb"
)

// TestSYNFlood: once challenges are many, a SYN is challenged before its connection is looked up: so is one that comes again, of
// a client that nobody knows. Until then it is the connection's.
func TestSYNFlood(t *testing.T) {
	t.Parallel()
	const line = "10.0.0.1:80/tcp endpoints=192.0.2.1:8080"
	o := newOpener(t, line)
	o.open(0)
	s, err := lb.ParseService(strings.Replace(line, "tcp", "tcp syn-protect=always", 1))
	if err != nil {
		t.Fatal(err)
	}
	table := compile.Service(s, nil, 0, nil)
	if err := o.d.Apply([]Change{{Key: table.Key, Table: &table}})[0]; err != nil {
		t.Fatal(err)
	}
	o.open(0)
	if n := challenged(t, o.d); n != 0 {
		t.Fatalf("%d challenges of a SYN that has a connection", n)
	}
	// each burst may be cut in two by whatever else this machine does
	for burst := range 50 {
		for i := range 200 {
			o.open(1 + 200*burst + i)
		}
		before := challenged(t, o.d)
		o.open(0)
		if challenged(t, o.d) == before+1 {
			return
		}
	}
	t.Error("among many challenges the SYN of a connection is looked up")
}

// challenged is how many challenges were sent.
func challenged(t *testing.T, d *Datapath) (n uint64) {
	t.Helper()
	var counts []bpf.TcChallengeCounts
	if err := d.collection.Maps.Challenges.Lookup(uint32(0), &counts); err != nil {
		t.Fatal(err)
	}
	for _, c := range counts {
		n += c.Sent
	}
	return n
}
