package tables

import (
	"fmt"
	"net/netip"

	"loxilb/internal/kernel/datapath/bpf"
	"loxilb/internal/kernel/datapath/rows"
)

// Endpoints on this machine itself answer through its own stack: their packets arrive at no
// interface. While there are any, including those that are ending, a second program handles leaving
// packets.

// countLocal notes an endpoint that was added (by is 1) or removed (-1).
func (t *Tables) countLocal(e *endpoint, by int) {
	if t.isLocal(e) {
		t.setLocalCount(uint32(int(t.localCount) + by))
	}
}

func (t *Tables) isLocal(e *endpoint) bool {
	_, ok := t.local[e.addr]
	return ok
}

// recountLocal is for when this machine's addresses have changed.
func (t *Tables) recountLocal() {
	var n uint32
	if len(t.local) > 0 {
		for _, e := range t.endpoints {
			if e != nil && t.isLocal(e) {
				n++
			}
		}
	}
	t.setLocalCount(n)
}

func (t *Tables) setLocalCount(n uint32) {
	flips := (n > 0) != (t.localCount > 0)
	if t.localCount = n; !flips {
		return
	}
	select {
	case t.localChanged <- struct{}{}:
	default: // somebody is to look already
	}
}

// LocalAnswersChanged has a value when LocalAnswersWanted may have changed since it was last
// received from.
func (t *Tables) LocalAnswersChanged() <-chan struct{} { return t.localChanged }

// LocalAnswersWanted reports whether endpoints are on this machine, so leaving packets must be
// handled: now, or with these changes.
func (t *Tables) LocalAnswersWanted(changes ...Change) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.localCount > 0 || len(t.local) == 0 {
		return t.localCount > 0
	}
	for _, c := range changes {
		if c.Table == nil {
			continue
		}
		for _, e := range c.Table.Endpoints {
			if _, ok := t.local[e.Addr]; ok {
				return true
			}
		}
	}
	return false
}

// SetLocalAnswers tells the packet path whether answers of endpoints on this machine are handled.
// The programs must be attached first.
func (t *Tables) SetLocalAnswers(on bool) error {
	var n uint32
	if on {
		n = 1
	}
	if err := t.vars.LocalEndpoints.Set(n); err != nil {
		return fmt.Errorf("say whether endpoints are on this machine: %w", err)
	}
	return nil
}

// adoptLocal reads what an earlier process left.
func (t *Tables) adoptLocal() error {
	var err error
	if t.local, err = rows.Read[bpf.TcIpAddr, uint8](t.maps.LocalAddresses); err != nil {
		return fmt.Errorf("read local addresses: %w", err)
	}
	t.recountLocal()
	return nil
}

// SetLocalAddresses sets the addresses of services on every local address. A failed write is
// retried by the next call.
func (t *Tables) SetLocalAddresses(list []netip.Addr) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	want := make(map[bpf.TcIpAddr]uint8, len(list))
	for _, a := range list {
		want[bpf.Addr(a)] = 1
	}
	_, err := rows.Sync(t.maps.LocalAddresses, t.local, want)
	t.recountLocal()
	if err != nil {
		return fmt.Errorf("write local addresses: %w", err)
	}
	return nil
}
