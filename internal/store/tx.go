package store

import (
	"fmt"
	"iter"
	"slices"
	"strconv"

	iradix "github.com/hashicorp/go-immutable-radix/v2"

	"loxilb/internal/lb"
)

// Tx is a transaction being edited: it sees its own changes, and nobody else does. It is good during the call of
// edit only.
type Tx struct {
	owner    string
	base     *Snapshot
	services *iradix.Txn[*entry]
	touched  map[lb.Key]struct{}
}

// change is what a transaction did: services put and keys deleted, each ordered by key.
type change struct {
	revision uint64
	owner    string
	put      []*entry
	deleted  []lb.Key
	twice    []error // of further VIPs that two services have
}

// whole tells whether the services of a snapshot can be together; c is what is new in it.
func whole(s *Snapshot, c *change) error {
	if len(c.twice) > 0 {
		return c.twice[0]
	}
	for _, e := range c.put {
		if err := checkSecondary(s, &e.service); err != nil {
			return err
		}
	}
	return checkLoops(s, c.put)
}

func (c *change) keys() []lb.Key {
	keys := slices.Clone(c.deleted)
	for _, e := range c.put {
		keys = append(keys, e.service.Key)
	}
	return keys
}

func begin(base *Snapshot, owner string) *Tx {
	return &Tx{owner: owner, base: base, services: base.services.Txn(), touched: make(map[lb.Key]struct{})}
}

// Get finds a service by its key.
func (tx *Tx) Get(k lb.Key) (lb.Service, bool) { return serviceOf(tx.services.Get(keyBytes(k))) }

// Owner is who wrote the service.
func (tx *Tx) Owner(k lb.Key) (string, bool) { return ownerOf(tx.services.Get(keyBytes(k))) }

// ByName finds the services of a name, which is never "", ordered by key. It costs as much as the transaction has
// touched, and as there are such services.
func (tx *Tx) ByName(name string) []lb.Service {
	if name == "" {
		return nil
	}
	list := slices.DeleteFunc(tx.base.ByName(name), func(s lb.Service) bool {
		_, touched := tx.touched[s.Key]
		return touched
	})
	for k := range tx.touched {
		if s, ok := tx.Get(k); ok && s.Name == name {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b lb.Service) int { return a.Key.Compare(b.Key) })
	return list
}

// All yields the services ordered by key, as they are when the loop begins: it may put and delete.
func (tx *Tx) All() iter.Seq[lb.Service] {
	return func(yield func(lb.Service) bool) {
		// The clone is frozen: the transaction copies what it changes from here on.
		for e := range walk(tx.services.Clone().Root()) {
			if !yield(e.service) {
				return
			}
		}
	}
}

// Put creates a service, or replaces the one with its key. It refuses a service that does not validate
// or whose range of ports overlaps with another's (*lb.FieldError) and one that another owner wrote (ErrOwner). Totals are checked at the end. Services may share
// a name.
func (tx *Tx) Put(s lb.Service) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := tx.mayChange(s.Key); err != nil {
		return err
	}
	if o, ok := tx.overlap(s.Key); ok {
		return lb.NewFieldError(lb.FieldPorts, strconv.Itoa(int(s.Port))+"-"+strconv.Itoa(int(s.PortMax)),
			"overlaps with service "+o.String(), "ports that no other range of the VIP, protocol and mark has")
	}
	tx.set(&entry{owner: tx.owner, service: s.Clone()})
	return nil
}

// overlap finds another service whose range of ports has some of k's. It costs as much as the VIP has services, and
// nothing for a service of one port.
func (tx *Tx) overlap(k lb.Key) (found lb.Key, ok bool) {
	if k.PortMax == 0 {
		return found, false
	}
	tx.services.Root().WalkPrefix(vipBytes(k), func(_ []byte, e *entry) bool {
		if o := e.service.Key; o != k && o.Overlaps(k) {
			found, ok = o, true
		}
		return ok
	})
	return found, ok
}

// Delete removes a service: ErrNotFound when there is none, ErrOwner when another owner wrote it.
func (tx *Tx) Delete(k lb.Key) error {
	if _, ok := tx.Owner(k); !ok {
		return fmt.Errorf("service %s %w", k, ErrNotFound)
	}
	if err := tx.mayChange(k); err != nil {
		return err
	}
	tx.remove(k)
	return nil
}

// Changed tells whether a commit would change anything by now. It costs as much as the transaction has touched.
func (tx *Tx) Changed() bool {
	for k := range tx.touched {
		if before, after := tx.compare(k); !sameEntry(before, after) {
			return true
		}
	}
	return false
}

func (tx *Tx) mayChange(k lb.Key) error {
	if owner, ok := tx.Owner(k); ok && owner != tx.owner {
		return fmt.Errorf("service %s %w, %q", k, ErrOwner, owner)
	}
	return nil
}

func (tx *Tx) set(e *entry) {
	tx.services.Insert(keyBytes(e.service.Key), e)
	tx.touched[e.service.Key] = struct{}{}
}

func (tx *Tx) remove(k lb.Key) {
	tx.services.Delete(keyBytes(k))
	tx.touched[k] = struct{}{}
}

// compare returns what k was before the transaction and what it is now; nil is absent.
func (tx *Tx) compare(k lb.Key) (before, after *entry) {
	b := keyBytes(k)
	before, _ = tx.base.services.Get(b)
	after, _ = tx.services.Get(b)
	return before, after
}

func sameEntry(a, b *entry) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.owner == b.owner && a.service.Equal(b.service)
}

// finish makes the next snapshot. The change is nil, and the snapshot the old one, when all is as it was.
func (tx *Tx) finish() (*Snapshot, *change) {
	c := &change{revision: tx.base.revision + 1, owner: tx.owner}
	names, seconds := tx.base.names.Txn(), tx.base.seconds.Txn()
	endpoints, sources := tx.base.endpoints, tx.base.sources
	for k := range tx.touched {
		before, after := tx.compare(k)
		if sameEntry(before, after) {
			continue
		}
		if before != nil {
			endpoints -= len(before.service.Endpoints)
			sources -= len(before.service.Sources)
			names.Delete(nameBytes(&before.service))
			for _, k := range before.service.SecondaryKeys() {
				seconds.Delete(keyBytes(k))
			}
		}
		if after == nil {
			c.deleted = append(c.deleted, k)
			continue
		}
		endpoints += len(after.service.Endpoints)
		sources += len(after.service.Sources)
		if after.service.Name != "" {
			names.Insert(nameBytes(&after.service), k)
		}
		c.put = append(c.put, after)
	}
	if len(c.put)+len(c.deleted) == 0 {
		return tx.base, nil
	}
	slices.SortFunc(c.put, func(a, b *entry) int { return a.service.Key.Compare(b.service.Key) })
	slices.SortFunc(c.deleted, lb.Key.Compare)
	for _, e := range c.put {
		for _, k := range e.service.SecondaryKeys() {
			if other, taken := seconds.Insert(keyBytes(k), e.service.Key); taken {
				c.twice = append(c.twice, secondaryTaken(k, other))
			}
		}
	}
	next := &Snapshot{
		revision: c.revision, services: tx.services.CommitOnly(), names: names.CommitOnly(), seconds: seconds.CommitOnly(), endpoints: endpoints,
		sources: sources,
	}
	return next, c
}
