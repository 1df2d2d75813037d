package datapath

import (
	"errors"
	"time"

	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/loader"
)

// exchange records how the programs of another version were replaced, to restore them.
type exchange struct {
	attach.Exchange
	began     time.Time // when drops were counted first
	before    map[string]uint64
	followers *loader.Followers // followers of the former programs, once they are restored
}

// DropsBefore returns the dropped packets, by reason, just before programs of this process were
// attached.
func (d *Datapath) DropsBefore() (at time.Time, drops map[string]uint64) {
	return d.exchange.began, d.exchange.before
}

// Exchanged reports whether programs of this process replaced others, which could be restored.
func (d *Datapath) Exchanged() bool { return len(d.exchange.Former()) > 0 }

// RollBack restores the former programs. Call FollowFormer from then on.
func (d *Datapath) RollBack() error {
	f, err := d.collection.Follow(d.exchange.Former())
	if err != nil {
		return err
	}
	if err := f.Write(); err != nil {
		return err
	}
	d.exchange.followers = f
	d.collection.Bell.Deafen(true)
	return d.exchange.Swap(true)
}

// FollowFormer copies the variables of this process's programs to the former ones.
func (d *Datapath) FollowFormer() error { return d.exchange.followers.Write() }

// RollForward undoes RollBack. The former programs are removed.
func (d *Datapath) RollForward() error {
	d.collection.Bell.Deafen(false)
	return errors.Join(d.exchange.Swap(false), d.exchange.Keep())
}

// KeepPrograms releases the former programs.
func (d *Datapath) KeepPrograms() error { return d.exchange.Keep() }
