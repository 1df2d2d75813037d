package reconcile

import (
	"log/slog"
	"regexp"
	"sync"

	"loxilb/internal/datapath"
	"loxilb/internal/netdev"
)

// Hooks is what Interfaces needs of the data path.
type Hooks interface {
	SetLink(datapath.Interface) error
	ForgetLink(index int) error
	Attach(datapath.Interface) error
	SetEgress(index int) error
	Detach(index int) error
	DetachOrphans(keep func(index int) bool) error
}

// Interfaces keeps the data path attached to the chosen interfaces. Its methods are safe for concurrent use.
type Interfaces struct {
	mu                   sync.Mutex
	hooks                Hooks
	whitelist, blacklist *regexp.Regexp
	log                  *slog.Logger
	known                map[int]datapath.Interface
	attached             map[int]bool
	cleaned              bool
}

// NewInterfaces chooses as netdev.Select does.
func NewInterfaces(h Hooks, whitelist, blacklist *regexp.Regexp, log *slog.Logger) *Interfaces {
	return &Interfaces{
		hooks: h, whitelist: whitelist, blacklist: blacklist, log: log,
		known: map[int]datapath.Interface{}, attached: map[int]bool{},
	}
}

// Sync attaches where it should be and is not, and the other way round. An interface that fails is logged, and
// tried again with the next Sync; the others do not wait for it.
func (i *Interfaces) Sync(links []netdev.Link) {
	i.mu.Lock()
	defer i.mu.Unlock()
	present := make(map[int]bool, len(links))
	for _, l := range links {
		present[l.Index] = true
		i.describe(l)
	}
	chosen := make(map[int]bool, len(links))
	for _, l := range netdev.Select(links, i.whitelist, i.blacklist) {
		chosen[l.Index] = true
		i.attach(l)
	}
	for index := range i.attached {
		if !chosen[index] {
			i.detach(index)
		}
	}
	for index := range i.known {
		if !present[index] {
			delete(i.known, index)
			if err := i.hooks.ForgetLink(index); err != nil {
				i.log.Error("interface not forgotten", "ifindex", index, "err", err)
			}
		}
	}
	if !i.cleaned {
		err := i.hooks.DetachOrphans(func(index int) bool { return chosen[index] })
		if err != nil {
			i.log.Error("interfaces that are no longer chosen are still attached", "err", err)
		}
		i.cleaned = err == nil
	}
}

func describe(l netdev.Link) datapath.Interface {
	return datapath.Interface{
		Index: l.Index, Name: l.Name, Layer3: !l.Ethernet() && len(l.MAC) == 0,
		Peer: l.Kind == "veth" && l.PeerElsewhere,
	}
}

func (i *Interfaces) describe(l netdev.Link) {
	d := describe(l)
	if i.known[l.Index] == d {
		return
	}
	if err := i.hooks.SetLink(d); err != nil {
		i.log.Error("interface not described to the data path", "interface", l.Name, "err", err)
		return
	}
	i.known[l.Index] = d
}

func (i *Interfaces) attach(l netdev.Link) {
	if i.attached[l.Index] {
		return
	}
	if err := i.hooks.Attach(describe(l)); err != nil {
		i.log.Error("interface not attached: packets that arrive there are not balanced", "interface", l.Name, "err", err)
		return
	}
	i.attached[l.Index] = true
	i.log.Info("interface attached", "interface", l.Name, "ifindex", l.Index)
	i.setEgress()
}

// SetEgress has attached interfaces follow endpoints on this machine.
func (i *Interfaces) SetEgress() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.setEgress()
}

func (i *Interfaces) setEgress() {
	for index := range i.attached {
		if err := i.hooks.SetEgress(index); err != nil {
			i.log.Error("endpoints on this machine are not answered for", "interface", i.known[index].Name, "error", err)
		}
	}
}

func (i *Interfaces) detach(index int) {
	if err := i.hooks.Detach(index); err != nil {
		i.log.Error("interface not detached", "ifindex", index, "err", err)
		return
	}
	delete(i.attached, index)
	i.log.Info("interface detached", "interface", i.known[index].Name, "ifindex", index)
}
