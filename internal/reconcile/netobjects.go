package reconcile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"loxilb/internal/desired"
	"loxilb/internal/netobj"
	"loxilb/internal/store"
)

// lookEvery is the least time between two looks at the whole of what the kernel has of a kind.
const lookEvery = 500 * time.Millisecond

// Ledger remembers what was made in the kernel, and not found there.
type Ledger interface {
	Has(kind, key string) []byte // what was made, as JSON; nil: nothing
	Keys(kind string) []string
	Note(kind string, objects map[string]any) error
	Cross(kind string, keys ...string) error
}

// NetObjects keeps the objects of one kind of the kernel's network as users want them. One that is in the kernel already, by somebody else, is
// as good, and is left there when nobody wants it any more; one that vanishes is made again.
type NetObjects[T netobj.Object[T]] struct {
	*objectLoop[T]
	kernel netobj.Kernel[T]
	ledger Ledger
	moved  atomic.Bool // the kernel may have lost some
	looked time.Time   // touched by feed only
}

// NewNetObjects makes the loop of a kind.
func NewNetObjects[T netobj.Object[T]](kind string, s *desired.State, table *store.Table[T], k netobj.Kernel[T], made Ledger, o Observers) *NetObjects[T] {
	n := &NetObjects[T]{kernel: k, ledger: made}
	n.objectLoop = newObjectLoop(kind, n, s, table, func(o *T) string { return (*o).Key() }, o)
	n.applied = func() []string { return made.Keys(kind) }
	n.Loop.feed = n.feed
	return n
}

// KernelChanged has what the kernel has compared with what is wanted.
func (n *NetObjects[T]) KernelChanged() {
	n.moved.Store(true)
	n.Wake()
}

func (n *NetObjects[T]) feed(ctx context.Context) {
	n.objectLoop.feed(ctx)
	if !n.moved.Load() {
		return
	}
	if wait := lookEvery - time.Since(n.looked); wait > 0 {
		time.AfterFunc(wait, n.Wake)
		return
	}
	n.moved.Store(false)
	n.looked = time.Now()
	n.look()
}

// look marks what is wanted and is not there.
func (n *NetObjects[T]) look() {
	now := n.desired.Snapshot()
	if n.table.Len(now) == 0 {
		return
	}
	have, err := n.kernel.All()
	for o := range n.table.All(now) {
		if err != nil || !slices.ContainsFunc(have[o.Key()], o.MetBy) {
			n.Mark(o.Key())
		}
	}
}

// pass is what is done with a batch of objects.
type pass[T netobj.Object[T]] struct {
	*NetObjects[T]
	have     map[string][]T // nil: it was not needed yet
	outcomes map[string]*Outcome[string]
	remove   map[string]T
	create   map[string]T
}

// Apply makes those of the keys that are wanted, and takes back those that are not and were made here.
func (n *NetObjects[T]) Apply(_ context.Context, keys []string) []Outcome[string] {
	out := make([]Outcome[string], len(keys))
	p := &pass[T]{n, nil, map[string]*Outcome[string]{}, map[string]T{}, map[string]T{}}
	now := n.desired.Snapshot()
	for i, key := range keys {
		out[i].Key = key
		p.outcomes[key] = &out[i]
		out[i].Err = p.plan(now, key)
	}
	p.removeAll()
	p.createAll()
	return out
}

// plan decides what is to be done with one object.
func (p *pass[T]) plan(now *store.Snapshot, key string) error {
	want, wanted := p.table.Get(now, key)
	meta, _ := p.table.Meta(now, key)
	p.outcomes[key].Version = meta.Version
	made, ours, err := p.made(key)
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
	case ours && slices.Contains(have, want), !ours && slices.ContainsFunc(have, want.MetBy):
	case ours && len(have) > 0:
		p.remove[key], p.create[key] = made, want
	case len(have) > 0:
		return &netobj.ForeignError{Kind: p.kind, Has: have[0].String()}
	default:
		p.create[key] = want
	}
	return nil
}

// find is what the kernel has by an object's key. All is read once at most, and not for what is new: of that there is nothing, as a rule.
func (p *pass[T]) find(want T, ours bool) (have []T, err error) {
	if quick, ok := p.kernel.(netobj.Absent[T]); ok && p.have == nil && !ours && quick.Absent(want) {
		return nil, nil
	}
	if p.have == nil {
		if p.have, err = p.kernel.All(); err != nil {
			return nil, err
		}
	}
	return p.have[want.Key()], nil
}

// made is the object that was made here by a key.
func (p *pass[T]) made(key string) (o T, ours bool, err error) {
	data := p.ledger.Has(p.kind, key)
	if data == nil {
		return o, false, nil
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return o, true, fmt.Errorf("what was made is not understood: %w", err)
	}
	return o, true, nil
}

func (p *pass[T]) removeAll() {
	var gone []string
	for key, o := range p.remove {
		if err := p.kernel.Remove(o); err != nil {
			p.outcomes[key].Err = err
			delete(p.create, key)
			continue
		}
		if _, again := p.create[key]; !again {
			gone = append(gone, key)
		}
	}
	p.fail(gone, p.ledger.Cross(p.kind, gone...))
}

func (p *pass[T]) createAll() {
	var keys, failed []string
	note := map[string]any{}
	for key, o := range p.create {
		keys, note[key] = append(keys, key), o
	}
	if err := p.ledger.Note(p.kind, note); err != nil {
		p.fail(keys, err)
		return
	}
	slices.Sort(keys)
	for _, key := range keys {
		if err := p.kernel.Make(p.create[key]); err != nil {
			p.outcomes[key].Err = err
			failed = append(failed, key)
		}
	}
	p.fail(failed, p.ledger.Cross(p.kind, failed...))
}

// fail adds an error to the outcomes of keys.
func (p *pass[T]) fail(keys []string, err error) {
	for _, key := range keys {
		p.outcomes[key].Err = errors.Join(p.outcomes[key].Err, err)
	}
}
