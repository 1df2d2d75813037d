package tables

import (
	"errors"
	"testing"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// TestHandshakes checks that the rows of a service's endpoints are read as the packet path wrote
// them, in any segment, and that a reused row starts from zero.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	d := load(t)
	const services, endpoints = 500, 10 // exceeds a segment
	apply(t, d, putChanges(0, services, endpoints)...)
	last := serviceKey(services - 1)
	rows, err := d.Handshakes(last, nil)
	if err != nil || len(rows) != endpoints || rows[9].ID < d.arrays.Handshakes.Shared.PerSegment() {
		t.Fatalf("got %v, %v, want %d rows, more than a segment has", rows, err, endpoints)
	}
	want := report.Handshakes{Opened: 9, Answered: [report.HandshakeBuckets]uint64{1, 10: 2}, Repeated: 3, Refused: 4, Reset: 5, Unreachable: 6}
	put := bpf.TcHandshakeCounts{OpenedBefore: 5, Answered: [report.HandshakeBuckets]uint64{10: 2}, Repeated: 3, Refused: 4, Reset: 5, Unreachable: 6}
	ofCPUs := d.handshakes.stepRows()
	ofCPUs[0] = bpf.TcHandshakeProgress{Opened: 1, Completed: 2, Answered: [bpf.TcHandshakeLayoutHANDSHAKE_FAST]uint64{1}}
	ofCPUs[len(ofCPUs)-1].Opened += 3
	if err := errors.Join(d.arrays.Handshakes.Shared.Put(rows[9].ID, put), d.arrays.Handshakes.PerCPU.Put(rows[9].ID, ofCPUs),
		d.c.EndpointStates.Put(rows[9].ID, bpf.TcEndpointState{Connections: 9})); err != nil {
		t.Fatal(err)
	}
	if rows, err = d.Handshakes(last, rows[:0]); err != nil || rows[9].Count != want || rows[9].Completed != 2 {
		t.Errorf("got %+v, %v, want counts %+v in row 9, and 2 completed handshakes", rows[9], err, want)
	}
	stats, _ := d.ServiceStats(last)
	if stats.Endpoints[9].Handshakes != want || stats.Handshakes != want {
		t.Errorf("got %+v, want handshakes %+v of endpoint 9 and of the service", stats, want)
	}
	if err := d.clearEndpoint(rows[9].ID); err != nil {
		t.Fatal(err)
	}
	if rows, err = d.Handshakes(last, rows[:0]); err != nil || rows[9].Count != (report.Handshakes{}) || rows[9].Completed != 0 {
		t.Errorf("got %+v, %v, want no error, rows[9].Count == report.Handshakes{}, rows[9].Completed == 0",
			rows[9], err)
	}
	if rows, err = d.Handshakes(serviceKey(services), nil); err != nil || len(rows) != 0 {
		t.Errorf("a missing service: %v, %v", rows, err)
	}
}

// BenchmarkHandshakes reads 10,000 endpoints.
func BenchmarkHandshakes(b *testing.B) {
	d := load(b)
	apply(b, d, putChanges(0, 1000, 10)...)
	var rows []report.HandshakeRow
	for b.Loop() {
		for n := range 1000 {
			var err error
			if rows, err = d.Handshakes(serviceKey(n), rows[:0]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
