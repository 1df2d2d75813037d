package connections

import (
	"errors"
	"os"

	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/lb/report"
)

// resetIdle sends RSTs to both ends of the connections that the last slice of a sweep handed over.
// It logs failures: these connections end silently.
func (t *Table) resetIdle() {
	if t.shared.IdleResets == 0 {
		return
	}
	var record ringbuf.Record
	failed := false
	fail := func(err error) {
		if err != nil && !failed {
			failed = true
			t.shared.Log.Error("idle connections end without RSTs", "error", err)
		}
	}
	for {
		err := t.programs.idle.ReadInto(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			fail(err)
			return
		}
		notified, err := t.resetRecord(record.RawSample)
		if notified {
			t.idleReset.Add(1)
		}
		fail(err)
	}
}

func (t *Table) resetRecord(record []byte) (bool, error) {
	e, err := readEnd(record)
	if err != nil {
		return false, err
	}
	return t.resetBoth(&e, generation|closed) // another connection with its generation, once in 256, is open
}

// IdleEnds counts connections that were established and silent for too long.
func (t *Table) IdleEnds() report.IdleEnds {
	var r bpf.SweepIdleReport
	if err := t.programs.idleReports.Lookup(uint32(0), &r); err != nil {
		t.shared.Log.Error("ends of idle connections cannot be counted", "error", err)
	}
	notified := min(t.idleReset.Load(), r.Told)
	return report.IdleEnds{Reset: notified, Silent: r.Untold + r.Told - notified}
}
