package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"loxilb/internal/control/desired"
	"loxilb/internal/control/store"
	"loxilb/internal/lb/netobj"
)

// readInterval is the minimum time between two comparisons of a kind with the kernel.
const readInterval = 500 * time.Millisecond

// maxLookups bounds the objects that are looked up individually. For more objects, reading the
// whole kind costs less, unless the kernel has many more: a lookup costs about as much as reading
// readsOfLookup objects.
const (
	maxLookups    = 256
	readsOfLookup = 5
)

// Ledger records the objects that loxilb has made in the kernel.
type Ledger interface {
	Get(kind, key string) []byte // the object as JSON; nil: not made by loxilb
	Keys(kind string) []string
	Record(kind string, objects map[string]any) error
	Forget(kind string, keys ...string) error
}

// NetObjects keeps the objects of one kind in the kernel's network. An equal object of another
// owner counts as applied, and stays when the desired object is deleted. An object that disappears
// is made again.
type NetObjects[T netobj.Object[T]] struct {
	*objectLoop[T]
	kernel       netobj.Kernel[T]
	ledger       Ledger
	lastCompared time.Time // only the loop's goroutine uses it, and kernelCount
	kernelCount  int       // number of the kind's objects in the kernel when all were last read

	mu         sync.Mutex
	allChanged bool                // the kernel may have lost any object
	changed    map[string]struct{} // keys of objects that the kernel may have lost
}

// NewNetObjects returns the loop of a kind.
func NewNetObjects[T netobj.Object[T]](s *desired.State, table store.Table[T], k netobj.Kernel[T], ledger Ledger, o Observers) *NetObjects[T] {
	n := &NetObjects[T]{kernel: k, ledger: ledger, changed: map[string]struct{}{}}
	n.objectLoop = newObjectLoop(n, s, table, o)
	n.applied = func() []string { return ledger.Keys(n.kind) }
	n.Loop.feed = n.feed
	return n
}

// KernelChanged compares the kernel with the desired objects of these keys, or of all if keys is
// nil. A router's table changes constantly, so a key that is not desired costs only a lookup in the
// snapshot.
func (n *NetObjects[T]) KernelChanged(keys []string) {
	snapshot := n.desired.Snapshot()
	news := keys == nil
	n.mu.Lock()
	n.allChanged = n.allChanged || news
	for _, key := range keys {
		if _, wanted := n.table.Get(snapshot, key); wanted {
			n.changed[key] = struct{}{}
			news = true
		}
	}
	n.mu.Unlock()
	if news {
		n.Wake()
	}
}

func (n *NetObjects[T]) feed(ctx context.Context) {
	n.objectLoop.feed(ctx)
	n.mu.Lock()
	moved := n.allChanged || len(n.changed) > 0
	n.mu.Unlock()
	if !moved {
		return
	}
	if wait := readInterval - time.Since(n.lastCompared); wait > 0 {
		time.AfterFunc(wait, n.Wake)
		return
	}
	n.lastCompared = time.Now()
	n.mu.Lock()
	all, keys := n.allChanged, n.changed
	n.allChanged, n.changed = false, map[string]struct{}{}
	n.mu.Unlock()
	n.markMissing(all, keys)
}

// markMissing marks desired objects that are missing in the kernel: of the keys, or all.
func (n *NetObjects[T]) markMissing(all bool, keys map[string]struct{}) {
	snapshot := n.desired.Snapshot()
	var wanted []T
	if all {
		wanted = slices.Collect(n.table.All(snapshot))
	} else {
		for key := range keys {
			if o, ok := n.table.Get(snapshot, key); ok {
				wanted = append(wanted, o)
			}
		}
	}
	r := n.reader(wanted)
	for _, o := range wanted {
		if have, err := r.find(o, false); err != nil || !slices.ContainsFunc(have, o.SatisfiedBy) {
			n.Mark(o.Key())
		}
	}
}

// reader finds objects in the kernel. It reads the whole kind at most once, and only if lookups do
// not suffice.
type reader[T netobj.Object[T]] struct {
	kernel      netobj.Kernel[T]
	lookUp      bool // whether to look up objects individually
	wanted      []T  // the objects to find
	kernelCount *int
	all         map[string][]T
}

// reader returns a reader that finds these objects.
func (n *NetObjects[T]) reader(wanted []T) reader[T] {
	lookUp := len(wanted) <= max(maxLookups, n.kernelCount/readsOfLookup)
	return reader[T]{kernel: n.kernel, lookUp: lookUp, wanted: wanted, kernelCount: &n.kernelCount}
}

// find returns the kernel's objects with the key of o. With complete, it reads the whole kind if a
// lookup finds none: a lookup leaves out objects that the kernel ignores at the moment, such as a
// route of a link without carrier.
func (r *reader[T]) find(o T, complete bool) (have []T, err error) {
	if quick, ok := r.kernel.(netobj.Lookup[T]); ok && r.lookUp && r.all == nil {
		if have, known := quick.Lookup(o); known && (len(have) > 0 || !complete) {
			return have, nil
		}
	}
	if r.all == nil {
		all, seen, err := netobj.FindAll(r.kernel, r.wanted)
		if err != nil {
			return nil, err
		}
		r.all, *r.kernelCount = all, seen
	}
	return r.all[o.Key()], nil
}

// pass handles a batch of objects.
type pass[T netobj.Object[T]] struct {
	*NetObjects[T]
	reader   reader[T]
	outcomes map[string]*Outcome[string]
	remove   map[string]T
	create   map[string]T
	kept     map[string]T // objects of create that an earlier pass made
}

// Apply makes the desired objects of the keys, and removes objects that loxilb made and that are no
// longer desired.
func (n *NetObjects[T]) Apply(_ context.Context, keys []string) []Outcome[string] {
	out := make([]Outcome[string], len(keys))
	snapshot := n.desired.Snapshot()
	wanted := make([]T, 0, len(keys))
	for _, key := range keys {
		if o, ok := n.table.Get(snapshot, key); ok {
			wanted = append(wanted, o)
		}
	}
	p := &pass[T]{
		NetObjects: n, reader: n.reader(wanted), outcomes: map[string]*Outcome[string]{},
		remove: map[string]T{}, create: map[string]T{}, kept: map[string]T{},
	}
	for i, key := range keys {
		out[i].Key = key
		p.outcomes[key] = &out[i]
		out[i].Err = p.plan(snapshot, key)
	}
	p.removeAll()
	p.createAll()
	return out
}

// plan decides how to handle one object.
func (p *pass[T]) plan(snapshot *store.Snapshot, key string) error {
	want, wanted := p.table.Get(snapshot, key)
	meta, _ := p.table.Meta(snapshot, key)
	p.outcomes[key].Version = meta.Version
	made, ours, err := p.recorded(key)
	if err != nil {
		return err
	}
	if !wanted {
		if ours {
			p.remove[key] = made
		}
		return nil
	}
	have, err := p.find(want, ours)
	switch {
	case err != nil:
		return err
	case ours && slices.Contains(have, want), !ours && slices.ContainsFunc(have, want.SatisfiedBy):
	case ours && len(have) > 0:
		p.remove[key], p.create[key] = made, want
	case ours:
		p.kept[key], p.create[key] = made, want
	case len(have) > 0:
		return &netobj.ForeignError{Kind: p.kind, Has: have[0].String()}
	default:
		p.create[key] = want
	}
	return nil
}

// find returns the kernel's objects with the key of want. For a new object a lookup suffices:
// usually the kernel has none.
func (p *pass[T]) find(want T, ours bool) (have []T, err error) {
	if quick, ok := p.kernel.(netobj.Absent[T]); ok && p.reader.all == nil && !ours && quick.Absent(want) {
		return nil, nil
	}
	return p.reader.find(want, ours)
}

// recorded returns the object that loxilb made for a key.
func (p *pass[T]) recorded(key string) (o T, ours bool, err error) {
	data := p.ledger.Get(p.kind, key)
	if data == nil {
		return o, false, nil
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, true, fmt.Errorf("the created object cannot be read back: %w", err)
	}
	return o, true, nil
}

func (p *pass[T]) removeAll() {
	var removed []string
	for key, o := range p.remove {
		if err := p.kernel.Remove(o); err != nil {
			p.outcomes[key].Err = err
			delete(p.create, key)
			continue
		}
		if _, recreated := p.create[key]; !recreated {
			removed = append(removed, key)
		}
	}
	p.fail(removed, p.ledger.Forget(p.kind, removed...))
}

func (p *pass[T]) createAll() {
	var keys, failed []string
	records, existing := map[string]any{}, map[string]any{}
	for key, o := range p.create {
		keys, records[key] = append(keys, key), o
	}
	if err := p.ledger.Record(p.kind, records); err != nil {
		p.fail(keys, err)
		return
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := p.kernel.Make(p.create[key]); err != nil {
			p.outcomes[key].Err = err
			if made, ours := p.kept[key]; ours && errors.Is(err, unix.EEXIST) {
				existing[key] = made // the kernel still has it
				continue
			}
			failed = append(failed, key)
		}
	}
	p.fail(slices.Sorted(maps.Keys(existing)), p.ledger.Record(p.kind, existing))
	p.fail(failed, p.ledger.Forget(p.kind, failed...))
}

// fail adds an error to the outcomes of keys.
func (p *pass[T]) fail(keys []string, err error) {
	for _, key := range keys {
		p.outcomes[key].Err = errors.Join(p.outcomes[key].Err, err)
	}
}
