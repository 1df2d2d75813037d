package datapath

import (
	"errors"
	"time"

	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/loader"
)

// exchange is how the programs of another version were replaced, and can come back.
type exchange struct {
	attach.Exchange
	began     time.Time // when drops were counted first
	before    map[string]uint64
	followers *loader.Followers // of the former programs, once they are back
}

// DropsBefore are the packets that were dropped, by reason, until a moment before programs of this
// process were attached.
func (d *Datapath) DropsBefore() (at time.Time, drops map[string]uint64) {
	return d.exchange.began, d.exchange.before
}

// Exchanged tells whether programs of this process took the place of others, which could come back.
func (d *Datapath) Exchanged() bool { return len(d.exchange.Former()) > 0 }

// GoBack has the former programs take their places again. FollowFormer is to be called from there
// on.
func (d *Datapath) GoBack() error {
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

// FollowFormer tells the former programs what this process tells its own.
func (d *Datapath) FollowFormer() error { return d.exchange.followers.Write() }

// GoForward takes GoBack back. The former programs are gone then.
func (d *Datapath) GoForward() error {
	d.collection.Bell.Deafen(false)
	return errors.Join(d.exchange.Swap(false), d.exchange.Keep())
}

// KeepPrograms lets go of the former programs.
func (d *Datapath) KeepPrograms() error { return d.exchange.Keep() }
