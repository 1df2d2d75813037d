package datapath

import "net/netip"

// Answers of endpoints on this machine arrive at no interface: while there are such endpoints, a
// second program at each interface inspects leaving packets. Before the first such endpoint gets
// packets, the programs are attached, and then the packet path is notified.
//
// If that program cannot be attached to an interface, services are applied and other interfaces
// work nevertheless: SetEgress reports the failure and retries.

// Apply is Tables.Apply, and makes sure that answers are handled before the first endpoint on this
// machine gets packets.
func (d *Datapath) Apply(changes []Change) []error {
	if d.HasLocalEndpoints(changes...) {
		d.localMu.Lock()
		defer d.localMu.Unlock()
		_ = d.updateLocal(true) // SetEgress retries it
	}
	return d.applyWithTails(changes)
}

// SetLocalAddresses sets the addresses of services on every local address. It may be retried.
func (d *Datapath) SetLocalAddresses(list []netip.Addr) error {
	d.localMu.Lock()
	defer d.localMu.Unlock()
	err := d.Tables.SetLocalAddresses(list)
	if d.HasLocalEndpoints() {
		_ = d.updateLocal(true) // SetEgress retries it
	}
	return err
}

// SetEgress attaches the program for answers of endpoints on this machine to an attached interface
// if there are such endpoints, and detaches it otherwise. Call it after attaching an interface and
// after a signal of LocalEndpointsChanged. It may be retried, and costs nothing without a change.
func (d *Datapath) SetEgress(index int) error {
	d.localMu.Lock()
	defer d.localMu.Unlock()
	wanted := d.HasLocalEndpoints()
	if err := d.updateLocal(wanted); err != nil {
		return err
	}
	return d.Hooks.SetEgress(index, wanted)
}

// updateLocal attaches the programs everywhere and then notifies the packet path, or the reverse,
// once. The caller holds d.localMu. Errors of interfaces are ignored here.
func (d *Datapath) updateLocal(wanted bool) error {
	if d.local == wanted {
		return nil
	}
	if wanted {
		d.Hooks.SetEgressAll(true)
	}
	if err := d.SetLocalAnswers(wanted); err != nil {
		return err
	}
	d.local = wanted
	if !wanted {
		d.Hooks.SetEgressAll(false)
	}
	return nil
}
