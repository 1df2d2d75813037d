package datapath

import (
	"errors"
	"fmt"

	"loxilb/internal/datapath/bpf"
)

// Endpoints that are on this machine itself answer through its own stack: their packets arrive at no interface. While
// there are any, also among those that are ending, a second program looks at what leaves.

// countLocal notes an endpoint that has come (by is 1) or gone (-1). What follows from it, followLocal does.
func (d *Datapath) countLocal(e *endpoint, by int) {
	if _, ok := d.tables.local[bpf.Addr(e.at.Addr())]; ok {
		d.tables.localEndpoints = uint32(int(d.tables.localEndpoints) + by)
	}
}

// recountLocal is for when this machine's addresses have changed.
func (d *Datapath) recountLocal() {
	d.tables.localEndpoints = 0
	if len(d.tables.local) == 0 {
		return
	}
	for _, e := range d.tables.endpoints {
		d.countLocal(e, 1)
	}
}

// followLocal attaches the programs of answers, or takes them away. First of all they are there, then the packet path is
// told.
func (d *Datapath) followLocal() error {
	want := d.tables.localEndpoints > 0
	var errs []error
	for _, a := range d.attached {
		if want == (a.out != nil) {
			continue
		}
		if err := d.followOut(a, want); err != nil {
			errs = append(errs, fmt.Errorf("answers of endpoints on this machine, at %s: %w", a.Interface.Name, err))
		}
	}
	if d.tables.localTold != d.tables.localEndpoints {
		if err := d.obj.LocalEndpoints.Set(d.tables.localEndpoints); err != nil {
			return errors.Join(append(errs, fmt.Errorf("count endpoints on this machine: %w", err))...)
		}
		d.tables.localTold = d.tables.localEndpoints
	}
	return errors.Join(errs...)
}

func (d *Datapath) followOut(a *attached, want bool) (err error) {
	if want {
		a.out, err = d.attach(a.Interface, leaving)
		return err
	}
	err = errors.Join(a.out.Detach(), a.out.Close())
	a.out = nil
	return err
}
