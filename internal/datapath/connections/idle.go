package connections

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"loxilb/internal/datapath/bpf"
	"loxilb/internal/lb"
)

// idleEnd is struct idle_end of bpf/abi.h.
type idleEnd struct{ client, reply bpf.TcConnectionKey }

// tellIdle has both ends told of the connections that the last slice of a sweep has handed over. What fails is logged: they end all the
// same, in silence.
func (t *Table) tellIdle() {
	if t.shared.IdleResets == 0 {
		return
	}
	var record ringbuf.Record
	failed := false
	fail := func(err error) {
		if err != nil && !failed {
			failed = true
			t.shared.Log.Error("the ends of idle connections are not told", "error", err)
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
		told, err := t.tellOf(record.RawSample)
		if told {
			t.idleTold.Add(1)
		}
		fail(err)
	}
}

func (t *Table) tellOf(record []byte) (bool, error) {
	var e idleEnd
	if len(record) < int(unsafe.Sizeof(e)) {
		return false, fmt.Errorf("an end of a connection has %d bytes, not %d", len(record), unsafe.Sizeof(e))
	}
	copy((*[unsafe.Sizeof(e)]byte)(unsafe.Pointer(&e))[:], record)
	return t.tell(e.client, e.reply, anyEndpoint)
}

// IdleEnds counts connections that were established and silent for too long.
func (t *Table) IdleEnds() lb.IdleEnds {
	var r bpf.SweepIdleReport
	if err := t.programs.IdleReports.Lookup(uint32(0), &r); err != nil {
		t.shared.Log.Error("ends of idle connections cannot be counted", "error", err)
	}
	told := min(t.idleTold.Load(), r.Told)
	return lb.IdleEnds{Told: told, Untold: r.Untold + r.Told - told}
}
