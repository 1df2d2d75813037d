package reconcile

import (
	"iter"
	"net/netip"
)

// keysAt has the keys of each address: usually one, possibly many.
type keysAt map[netip.Addr]*keySet

type keySet struct {
	one  string
	more map[string]struct{} // nil: none
}

func (k keysAt) add(a netip.Addr, key string) {
	s := k[a]
	switch {
	case s == nil:
		k[a] = &keySet{one: key}
	case s.one == key:
	case s.more == nil:
		s.more = map[string]struct{}{key: {}}
	default:
		s.more[key] = struct{}{}
	}
}

// remove removes a key of an address, if it exists.
func (k keysAt) remove(a netip.Addr, key string) {
	s := k[a]
	if s == nil {
		return
	}
	if s.one != key {
		delete(s.more, key)
		return
	}
	for other := range s.more {
		s.one = other
		delete(s.more, other)
		return
	}
	delete(k, a)
}

// of yields the keys of an address.
func (k keysAt) of(a netip.Addr) iter.Seq[string] {
	return func(yield func(string) bool) {
		s := k[a]
		if s == nil || !yield(s.one) {
			return
		}
		for key := range s.more {
			if !yield(key) {
				return
			}
		}
	}
}
