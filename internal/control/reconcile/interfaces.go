package reconcile

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"loxilb/internal/control/status"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/netdev"
)

// InterfaceKind is the kind of the statuses of interfaces.
const InterfaceKind = "interface"

// Hooks is the part of the data path for Interfaces.
type Hooks interface {
	SetLink(datapath.Interface) error
	ForgetLink(index int) error
	ForgetOtherLinks(keep func(index int) bool) error
	Attach(datapath.Interface) error
	// SetEgress attaches the program for answers of endpoints on this machine, if there are
	// such endpoints.
	SetEgress(index int) error
	// MayQueue reports whether packets that leave by an interface meet neither a queueing
	// discipline nor a program of another owner.
	MayQueue(index int) bool
	Detach(index int) error
	DetachOrphans(keep func(index int) bool) error
}

// InterfacesConfig has the dependencies and options of Interfaces.
type InterfacesConfig struct {
	Observers
	Hooks                Hooks
	Links                func() []netdev.Link
	Whitelist, Blacklist *regexp.Regexp // as for netdev.Select
}

// Interfaces keeps the data path attached to the selected interfaces, each independently: a failing
// one is retried and does not delay others.
type Interfaces struct {
	*Loop[int]
	InterfacesConfig
	current      map[int]attachment // interfaces in the data path
	orphans      bool               // interfaces of an earlier process that are no longer selected may still be attached
	retryTimer   *time.Timer        // of the next attempt to detach orphans
	recheckTimer *time.Timer        // of the next pass after egressInterval
}

// egressInterval is how often interfaces are checked for queueing disciplines and programs of other
// owners: the kernel does not report these as changes of the interface.
const egressInterval = 30 * time.Second

// attachment is the state of an interface in the data path.
type attachment struct {
	datapath.Interface
	set        bool   // SetLink succeeded
	generation uint64 // of the link: a new link with the same index lacks our programs
	attached   bool
	gone       bool // it no longer exists, but could not be forgotten yet
}

// allInterfaces is the key for all interfaces: the kernel numbers them from 1.
const allInterfaces = 0

// NewInterfaces returns the loop of the interfaces.
func NewInterfaces(c InterfacesConfig) *Interfaces {
	i := &Interfaces{InterfacesConfig: c, current: map[int]attachment{}, orphans: true}
	i.Loop = newLoop(InterfaceKind, i.nameOf, i, c.Observers)
	i.MarkAll()
	return i
}

// MarkAll reports that any interface may have changed.
func (i *Interfaces) MarkAll() { i.Mark(allInterfaces) }

// nameOf returns an interface's name. Loop calls it for interfaces that Apply has just seen.
func (i *Interfaces) nameOf(index int) string {
	if state, ok := i.current[index]; ok {
		return state.Name
	}
	return "#" + strconv.Itoa(index)
}

// Apply attaches or detaches programs where the actual state differs.
func (i *Interfaces) Apply(_ context.Context, keys []int) (outcomes []Outcome[int]) {
	present, chosen := map[int]netdev.Link{}, map[int]bool{}
	list := i.Links()
	for _, l := range list {
		present[l.Index] = l
	}
	for _, l := range netdev.Select(list, i.Whitelist, i.Blacklist) {
		chosen[l.Index] = true
	}
	for _, index := range i.expand(keys, present) {
		link, exists := present[index]
		if !exists {
			outcomes = append(outcomes, i.forget(index))
			continue
		}
		outcomes = append(outcomes, i.update(link, chosen[index], bridges(present[link.Master])))
	}
	i.detachOrphans(present, chosen)
	if slices.Contains(keys, allInterfaces) { // only then: changes of single interfaces must not delay the check of the others
		if i.recheckTimer == nil {
			i.recheckTimer = time.AfterFunc(egressInterval, i.MarkAll)
		}
		i.recheckTimer.Reset(egressInterval)
	}
	return outcomes
}

// expand replaces allInterfaces by the keys of all interfaces, present and former.
func (i *Interfaces) expand(keys []int, present map[int]netdev.Link) []int {
	var out []int
	for _, k := range keys {
		if k != allInterfaces {
			out = append(out, k)
			continue
		}
		for index := range present {
			out = append(out, index)
		}
		for index := range i.current {
			out = append(out, index)
		}
	}
	return unique(out)
}

// Describe returns a link in the data path's form.
func Describe(l netdev.Link) datapath.Interface {
	return datapath.Interface{
		Index: l.Index, Name: l.Name, Layer3: !l.Ethernet() && len(l.MAC) == 0,
		Peer: l.Kind == "veth" && l.PeerElsewhere, Bridge: l.Kind == "bridge",
	}
}

// bridges reports whether a link forwards the frames of its ports to other ports.
func bridges(master netdev.Link) bool {
	return master.Kind == "bridge" || master.Kind == "openvswitch"
}

// update updates an interface in the data path, and attaches or detaches the programs.
func (i *Interfaces) update(l netdev.Link, chosen, bridged bool) Outcome[int] {
	o := Outcome[int]{Key: l.Index}
	if chosen {
		o.Version = 1
	}
	state, had := i.current[l.Index]
	if had && state.Name != l.Name {
		i.Statuses.Forget(status.ID{Kind: InterfaceKind, Key: state.Name})
	}
	if had && (state.generation != l.Generation || state.gone) {
		state = attachment{}
		o.Err = i.Hooks.Detach(l.Index) // the programs disappeared with the previous interface of this index
	}
	d := Describe(l)
	d.BridgePort = bridged
	d.Queues = d.Peer && i.Hooks.MayQueue(l.Index)
	if !state.set || state.Interface != d {
		err := i.Hooks.SetLink(d)
		o.Err = errors.Join(o.Err, err)
		state.Interface, state.set = d, err == nil
	}
	state.generation = l.Generation
	if o.Err == nil && state.attached != chosen {
		o.Err = i.attach(&state, chosen)
	}
	if o.Err == nil && state.attached {
		o.Err = i.Hooks.SetEgress(l.Index)
	}
	i.current[l.Index] = state
	return o
}

func (i *Interfaces) attach(state *attachment, wanted bool) error {
	if !wanted {
		if err := i.Hooks.Detach(state.Index); err != nil {
			return err
		}
		state.attached = false
		i.log.Info("interface detached", "interface", state.Name, "ifindex", state.Index)
		return nil
	}
	if err := i.Hooks.Attach(state.Interface); err != nil {
		return fmt.Errorf("packets that arrive there are not balanced: %w", err)
	}
	state.attached = true
	i.log.Info("interface attached", "interface", state.Name, "ifindex", state.Index)
	return nil
}

// forget removes a missing interface from the data path. If that fails, its status has its index
// from then on, since another interface may have its name now.
func (i *Interfaces) forget(index int) Outcome[int] {
	state, had := i.current[index]
	o := Outcome[int]{Key: index}
	if !had {
		return o
	}
	if state.attached {
		o.Err = i.Hooks.Detach(index)
	}
	if o.Err = errors.Join(o.Err, i.Hooks.ForgetLink(index)); o.Err == nil {
		delete(i.current, index)
		i.Statuses.Forget(status.ID{Kind: InterfaceKind, Key: state.Name})
		i.log.Info("interface is gone", "interface", state.Name, "ifindex", index)
		return o
	}
	if !state.gone {
		i.Statuses.Forget(status.ID{Kind: InterfaceKind, Key: state.Name})
		state.gone, state.Name = true, fmt.Sprintf("%s (%d)", state.Name, index)
		i.current[index] = state
	}
	return o
}

// detachOrphans detaches interfaces that an earlier process attached and that are not chosen now,
// and forgets missing ones, once.
func (i *Interfaces) detachOrphans(present map[int]netdev.Link, chosen map[int]bool) {
	if !i.orphans {
		return
	}
	id := status.ID{Kind: TaskKind, Key: "interfaces of an earlier start"}
	err := errors.Join(
		i.Hooks.DetachOrphans(func(index int) bool { return chosen[index] }),
		i.Hooks.ForgetOtherLinks(func(index int) bool { _, exists := present[index]; return exists }),
	)
	i.orphans = err != nil
	if err == nil {
		i.Statuses.Forget(id)
		return
	}
	next := time.Now().Add(leftoverRetry)
	if i.Statuses.Failed(id, 1, err, next) {
		i.log.Error("interfaces that are no longer chosen are still attached; trying again", "error", err)
	}
	if i.retryTimer != nil {
		i.retryTimer.Stop()
	}
	i.retryTimer = time.AfterFunc(leftoverRetry, i.MarkAll)
}
