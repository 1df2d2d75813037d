package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync/atomic"

	"loxilb/internal/config"
	"loxilb/internal/kernel/datapath"
	"loxilb/internal/kernel/netdev"
)

// XDPHooks is the part of the data path for XDP.
type XDPHooks interface {
	SetXDP(datapath.XDPInterface) error
	ForgetXDP(index int) error
	DetachXDPOrphans() error
}

// XDPMode returns how the program is attached.
func XDPMode(c config.XDP) datapath.XDPMode {
	if c == config.XDPGeneric {
		return datapath.XDPGeneric
	}
	return datapath.XDPNative
}

// XDPConfig configures the interfaces with the XDP program.
type XDPConfig struct {
	Choice               config.XDP
	Whitelist, Blacklist *regexp.Regexp                             // as in Interfaces
	Features             func() (map[int]netdev.XDPFeatures, error) // of all interfaces; nil: the kernel does not report them
	HidesTags            func(netdev.Link) bool                     // whether frames arrive without their VLAN tags; nil: all do
}

// XDP keeps the XDP program attached to the configured interfaces. It is not safe for concurrent
// use.
type XDP struct {
	XDPConfig
	hooks           XDPHooks
	log             *slog.Logger
	current         map[int]datapath.XDPInterface // the interfaces in the data path
	links           map[int]uint64                // generations of their links
	refused         map[int]refusal               // by index
	hidden          atomic.Pointer[[]HiddenTags]
	reports         atomic.Pointer[map[string]string]
	orphansDetached bool
}

// refusal is why the program could not be attached to an interface.
type refusal struct{ name, reason string }

// NewXDP returns an XDP that has attached nothing yet.
func NewXDP(h XDPHooks, c XDPConfig, log *slog.Logger) *XDP {
	x := &XDP{XDPConfig: c, hooks: h, log: log, current: map[int]datapath.XDPInterface{}, links: map[int]uint64{}, refused: map[int]refusal{}}
	if x.HidesTags == nil {
		x.HidesTags = func(netdev.Link) bool { return true }
	}
	x.hidden.Store(&[]HiddenTags{})
	x.reports.Store(&map[string]string{})
	return x
}

// Reports returns, by the names of interfaces where the program is wanted, how it is attached
// (native, generic), or "off: " and the reason. It is safe for concurrent use.
func (x *XDP) Reports() map[string]string { return *x.reports.Load() }

// report updates Reports.
func (x *XDP) report() {
	out := map[string]string{}
	for _, i := range x.current {
		if i.Attach {
			out[i.Name] = string(XDPMode(x.Choice))
		}
	}
	for _, refused := range x.refused {
		out[refused.name] = "off: " + refused.reason
	}
	x.reports.Store(&out)
}

// Sync makes the data path's XDP follow the interfaces. If the program cannot be attached to an
// interface, its packets are handled by tc alone. The error names each failed interface, unless the
// mode is auto; the next Sync retries.
func (x *XDP) Sync(links []netdev.Link) error {
	features, err := x.Features()
	if err != nil {
		return fmt.Errorf("XDP is unchanged, since the kernel does not report the features of drivers: %w", err)
	}
	defer x.report()
	plan := x.plan(links, features)
	errs := x.forgetReplaced(links)
	for _, i := range plan {
		x.set(i, features != nil)
	}
	if x.Choice != config.XDPAuto {
		for _, index := range slices.Sorted(maps.Keys(x.refused)) {
			refused := x.refused[index]
			errs = append(errs, fmt.Errorf("XDP is not attached to %s: %s; its packets go through tc only", refused.name, refused.reason))
		}
	}
	for index := range x.current {
		if _, ok := plan[index]; !ok {
			errs = append(errs, x.forget(index))
		}
	}
	if !x.orphansDetached {
		if err := x.hooks.DetachXDPOrphans(); err != nil {
			return errors.Join(append(errs, fmt.Errorf("detach XDP from interfaces that are no longer chosen: %w", err))...)
		}
		x.orphansDetached = true
	}
	return errors.Join(errs...)
}

// forgetReplaced forgets links whose index now belongs to another link.
func (x *XDP) forgetReplaced(links []netdev.Link) (errs []error) {
	present := make(map[int]uint64, len(links))
	for _, l := range links {
		if _, known := x.current[l.Index]; known && x.links[l.Index] != l.Generation {
			errs = append(errs, x.forget(l.Index))
		}
		present[l.Index] = l.Generation
	}
	x.links = present
	maps.DeleteFunc(x.refused, func(index int, _ refusal) bool { _, exists := present[index]; return !exists })
	return errs
}

// plan returns the desired state of each interface; nil if XDP is off everywhere.
func (x *XDP) plan(links []netdev.Link, features map[int]netdev.XDPFeatures) map[int]datapath.XDPInterface {
	plan := map[int]datapath.XDPInterface{}
	wanted := false
	chosen := map[int]bool{}
	for _, l := range netdev.Select(links, x.Whitelist, x.Blacklist) {
		chosen[l.Index] = true
	}
	tagged := tagged(links)
	hidden := []HiddenTags{}
	defer func() { x.hidden.Store(&hidden) }()
	for _, l := range links {
		if !l.Ethernet() || len(l.MAC) != 6 || l.Loopback() {
			continue
		}
		i := datapath.XDPInterface{Index: l.Index, Name: l.Name, MAC: [6]byte(l.MAC)}
		i.Attach = chosen[l.Index] && x.wantsProgram(l, features[l.Index])
		if !i.Attach {
			delete(x.refused, l.Index)
		}
		if i.Attach {
			hides := x.Choice != config.XDPGeneric && x.HidesTags(l)
			if err := x.refuseTags(l, hides, tagged[l.Index]); err != nil {
				x.refuse(i, err)
				i.Attach = false
			}
			if hides && l.Kind != "veth" { // for veth there is no remedy
				hidden = append(hidden, HiddenTags{l.Name, i.Attach})
			}
		}
		i.Target = x.isTarget(l, i.Attach, features)
		wanted = wanted || i.Attach
		plan[l.Index] = i
	}
	if !wanted {
		return nil
	}
	return plan
}

// wantsProgram reports whether the program is wanted at a chosen interface.
func (x *XDP) wantsProgram(l netdev.Link, can netdev.XDPFeatures) bool {
	const all = netdev.XDPBasic | netdev.XDPRedirect | netdev.XDPTransmit
	switch x.Choice {
	case config.XDPNative, config.XDPGeneric:
		return true
	case config.XDPAuto:
		return (l.Bus == "pci" || l.Bus == "platform") && can&all == all
	}
	return false
}

// isTarget reports whether an interface sends frames that are redirected to it. If the kernel does
// not report that, it is assumed of drivers that can run programs, except veth, which drops such
// frames silently unless its other end is prepared.
func (x *XDP) isTarget(l netdev.Link, attached bool, features map[int]netdev.XDPFeatures) bool {
	switch {
	case x.Choice == config.XDPGeneric:
		return true
	case features == nil:
		return attached && l.Kind != "veth"
	}
	return features[l.Index]&netdev.XDPTransmit != 0
}

// set adds an interface to the data path, without the program if that cannot be attached. known
// means that the kernel reports the drivers' features.
func (x *XDP) set(i datapath.XDPInterface, known bool) {
	old := x.current[i.Index]
	if old == i {
		return
	}
	err := x.hooks.SetXDP(i)
	if err != nil {
		x.refuse(i, err)
		i.Attach, i.Target = false, i.Target && known
		if old == i || x.hooks.SetXDP(i) != nil {
			return
		}
	} else if i.Attach {
		delete(x.refused, i.Index)
	}
	x.current[i.Index] = i
	switch {
	case i.Attach && !old.Attach:
		x.log.Info("XDP attached", "interface", i.Name, "mode", XDPMode(x.Choice))
	case !i.Attach && old.Attach:
		x.log.Info("XDP detached", "interface", i.Name)
	}
}

// refuse records why the program is not attached. In mode auto, that is logged once; otherwise Sync
// returns it as an error.
func (x *XDP) refuse(i datapath.XDPInterface, err error) {
	refused := refusal{i.Name, err.Error()}
	if x.Choice == config.XDPAuto && x.refused[i.Index] != refused {
		x.log.Info("XDP not attached: packets that arrive there go through tc only", "interface", i.Name, "error", err)
	}
	x.refused[i.Index] = refused
}

func (x *XDP) forget(index int) error {
	if err := x.hooks.ForgetXDP(index); err != nil {
		return fmt.Errorf("detach XDP from interface %d: %w", index, err)
	}
	delete(x.current, index)
	delete(x.refused, index)
	return nil
}

// Reasons why XDP is not attached to an interface with VLANs (docs/adr/0073-xdp.md).
var (
	errTagged = errors.New("it has VLAN interfaces, whose frames generic XDP would send on with their tag")
	errHidden = errors.New("it has VLAN interfaces, and its driver removes their tags from the frames," +
		" where XDP does not see them (to leave them in: ethtool -K INTERFACE rxvlan off)")
	errTagsOutOfBand = errors.New("it has VLAN interfaces, and a veth passes their tags as metadata, which XDP does not see")
)

// HiddenTags is an interface chosen for XDP whose driver removes VLAN tags from frames before XDP.
type HiddenTags struct {
	Interface string
	Attached  bool // false: it has VLANs, so its packets use tc only
}

// HiddenTags lists the interfaces of the last Sync. It is safe for concurrent use.
func (x *XDP) HiddenTags() []HiddenTags { return *x.hidden.Load() }

// refuseTags returns why the program must not be attached to an interface that receives frames of
// VLANs. Without its tag, such a frame seems to belong to the interface itself: XDP would challenge
// the sender outside the VLAN, and let it into other connections.
func (x *XDP) refuseTags(l netdev.Link, hidden, tagged bool) error {
	switch {
	case !tagged || x.Choice != config.XDPGeneric && !hidden:
		return nil
	case x.Choice == config.XDPGeneric:
		return errTagged
	case l.Kind == "veth":
		return errTagsOutOfBand
	}
	return errHidden
}

// tagged returns the interfaces that receive frames of VLANs: interfaces with VLAN interfaces, and
// the ports of bonds and bridges with VLAN interfaces.
func tagged(links []netdev.Link) map[int]bool {
	out, byIndex := map[int]bool{}, make(map[int]netdev.Link, len(links))
	for _, l := range links {
		byIndex[l.Index] = l
		if l.Kind == "vlan" && !l.PeerElsewhere {
			out[l.PeerIndex] = true
		}
	}
	for _, l := range links {
		for m, depth := l, 0; m.Master != 0 && depth < maxMasters; depth++ {
			m = byIndex[m.Master]
			out[l.Index] = out[l.Index] || out[m.Index]
		}
	}
	return out
}

// maxMasters bounds the number of interfaces stacked on each other: Linux allows eight.
const maxMasters = 8
