package desired

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"loxilb/internal/control/store"
	"loxilb/internal/host/monotime"
	"loxilb/internal/lb"
)

// DrainKind is the name of the kind, as messages and journals have it: an endpoint that takes no
// new connections.
const DrainKind = "drain"

// maxDrains bounds them: each service that is applied is compared with all.
const maxDrains = 1024

// Drains is the table of endpoints that take no new connections.
type Drains struct{ *store.Table[lb.Drain] }

func newDrains() *Drains {
	d := &Drains{}
	d.Table = store.NewTable(store.Kind[lb.Drain]{
		Name: DrainKind,
		Key:  lb.Drain.Key,
		Equal: func(a, b lb.Drain) bool {
			return a.Key() == b.Key() && a.Rate == b.Rate && sameDeadline(a.Deadline, b.Deadline)
		},
		Validate: lb.Drain.Validate,
		Format:   2,
		Encode:   encodeDrain,
		Decode:   decodeDrain,
		Check: func(before, after *store.Snapshot, _ []store.ID) error {
			if n := d.Len(after); n > maxDrains && n > d.Len(before) {
				return fmt.Errorf("a total of %d endpoints that are drained %w of %d", n, store.ErrLimit, maxDrains)
			}
			return nil
		},
	})
	return d
}

// deadlineSlack is by how much two readings of one deadline differ at most.
const deadlineSlack = 10 * time.Millisecond

// sameDeadline compares deadlines by the wall clock, as users see them. Applying an export must
// change nothing, and an export rounds. Monotonic readings differ by the time at which each was
// read, and the wall time of a deadline that was stored before the clock was set (monotime.Stored)
// differs after each start.
func sameDeadline(a, b time.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() && b.IsZero()
	}
	return a.Round(0).Sub(b.Round(0)).Abs() <= deadlineSlack
}

// storedDrain is a drain with its deadline by two clocks: the wall clock may have been set before
// it is read.
type storedDrain struct {
	lb.Drain
	Boot   string        `json:"boot,omitempty"`
	Uptime time.Duration `json:"uptime,omitempty"` // nanoseconds
}

func encodeDrain(d lb.Drain) (format int, object []byte, err error) {
	stored := storedDrain{Drain: d}
	format = 1
	if !d.Deadline.IsZero() {
		m := monotime.Of(d.Deadline)
		stored.Deadline, stored.Boot, stored.Uptime = m.At, m.Boot, m.Uptime
		format = 2
	}
	object, err = json.Marshal(stored)
	return format, object, err
}

func decodeDrain(_ int, object []byte) (lb.Drain, error) {
	var d storedDrain
	err := store.DecodeStrict(object, &d)
	d.Deadline = monotime.Stored{At: d.Deadline, Boot: d.Boot, Uptime: d.Uptime}.Time()
	return d.Drain, err
}

// Weigh returns the service with weight 0 for endpoints that are drained.
func (d *Drains) Weigh(snapshot *store.Snapshot, s lb.Service) lb.Service {
	own := false
	for drain := range d.All(snapshot) {
		for i, e := range s.Endpoints {
			if !drain.Has(e.Addr, e.Port) {
				continue
			}
			if !own {
				s.Endpoints, own = slices.Clone(s.Endpoints), true
			}
			s.Endpoints[i].Weight = 0
		}
	}
	return s
}

// DrainedAddr returns the address of a drain's ID, whether or not the drain exists; false: an ID of
// another kind.
func DrainedAddr(id store.ID) (netip.Addr, bool) {
	if id.Kind != DrainKind {
		return netip.Addr{}, false
	}
	d, err := lb.ParseDrain(id.Key)
	return d.Addr, err == nil
}
