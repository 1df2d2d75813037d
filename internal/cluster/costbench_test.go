package cluster

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/cluster/record"
	"loxilb/internal/lb/report"
)

// The events of a short connection, and how many arrive at a time at 100,000 connections per
// second: the ring is read every millisecond.
var lifeEvents = []uint8{answered, proven, closed}

const eventsPerBatch = 100

// shortConnections returns batches of events: in each, connections open, and earlier ones prove
// that their client exists, and close.
func shortConnections(batches int) (list [][]report.ConnectionCopy) {
	for n := range batches {
		var batch []report.ConnectionCopy
		for age, flags := range lifeEvents {
			for i := range eventsPerBatch {
				c := connection((n-20*age)*eventsPerBatch + i + 1<<20)
				c.Flags = flags
				batch = append(batch, c)
			}
		}
		list = append(list, batch)
	}
	return list
}

// cpuOf returns the CPU time of the calling thread, or of the process.
func cpuOf(b *testing.B, who int) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFeed measures what a node does with the events of short connections before they are
// written to peers: CPU time of all threads, per connection.
func BenchmarkFeed(b *testing.B) {
	for _, peers := range []int{1, 2, 7} {
		b.Run(map[int]string{1: "1 peer", 2: "2 peers", 7: "7 peers"}[peers], func(b *testing.B) {
			n := &Node{Config: Config{Log: slog.New(slog.DiscardHandler)}}
			for range peers {
				n.peers = append(n.peers, &peer{node: n, queue: newQueue(), readsPacked: true, now: report.ClusterPeer{State: report.PeerUp}})
			}
			p := &pace{yield: n.broadcast}
			const batches = 1000
			all, work := shortConnections(batches), make([]report.ConnectionCopy, 0, 1024)
			records, bytes, rounds := 0, 0, 0
			before := cpuOf(b, unix.RUSAGE_SELF)
			for b.Loop() {
				for i, batch := range all {
					p.add(append(work[:0], batch...))
					if i%100 == 99 { // 0.1 s at that rate
						p.endPeriod()
					}
					for _, one := range n.peers {
						list, _ := one.queue.take()
						for _, c := range list {
							records, bytes = records+c.count, bytes+len(c.data)
						}
					}
				}
				rounds++
			}
			connections := float64(rounds * batches * eventsPerBatch)
			b.ReportMetric(float64(cpuOf(b, unix.RUSAGE_SELF)-before)/connections, "cpu-ns/connection")
			b.ReportMetric(float64(records)/connections/float64(peers), "records/connection/peer")
			b.ReportMetric(float64(bytes)/connections/float64(peers), "bytes/connection/peer")
		})
	}
}

// idleTable is a table that takes copies for free.
type idleTable struct{ *table }

func (idleTable) PutCopies(_ context.Context, _ []report.ConnectionCopy, results []report.CopyResult) error {
	for i := range results {
		results[i] = report.CopyMerged
	}
	return nil
}

// BenchmarkReceive measures decoding and bookkeeping of records of another node, without the table:
// CPU time of the thread per connection, at two records each.
func BenchmarkReceive(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := &Node{Config: Config{Table: idleTable{newTable()}}}
	s := &source{}
	var frame record.Packer
	var data []byte
	for i := range 2 * eventsPerBatch {
		one := connection(i)
		data = frame.Append(data, &one)
	}
	var list []report.ConnectionCopy
	before, rounds := cpuOf(b, unix.RUSAGE_THREAD), 0
	for b.Loop() {
		var frame record.Unpacker
		var err error
		if list, err = decode(list[:0], slices.Clone(data), frame.Decode); err == nil {
			err = n.apply(b.Context(), s, list)
		}
		if err != nil {
			b.Fatal(err)
		}
		rounds++
	}
	b.ReportMetric(float64(cpuOf(b, unix.RUSAGE_THREAD)-before)/float64(rounds*eventsPerBatch), "cpu-ns/connection")
}
