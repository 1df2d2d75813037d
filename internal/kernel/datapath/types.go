package datapath

import (
	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/connections"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/routing"
	"loxilb/internal/kernel/datapath/tables"
	"loxilb/internal/kernel/datapath/xdp"
)

// Types of the parts that callers hand over and get.
type (
	// Timeouts are how long a connection may be silent.
	Timeouts = loader.Timeouts
	// Change is a service as it shall be.
	Change = tables.Change
	// Interface is what Attach must know of an interface.
	Interface = attach.Interface
	// Hook is the kind of tc hook.
	Hook = attach.Hook
	// DefaultRoute is a next hop of a default route.
	DefaultRoute = routing.DefaultRoute
	// XDPInterface is what the XDP program must know of an interface.
	XDPInterface = xdp.Interface
	// XDPMode is how the XDP program is attached.
	XDPMode = xdp.Mode
	// ProbeWay is where the packets of a probe are led.
	ProbeWay = attach.ProbeWay
	// SweepStats say what the sweeps have done.
	SweepStats = connections.SweepStats
)

// The kinds of tc hooks, and the modes of XDP.
const (
	HookAuto   = attach.HookAuto
	HookTCX    = attach.HookTCX
	HookClsact = attach.HookClsact

	XDPNative  = xdp.Native
	XDPGeneric = xdp.Generic
)

// ErrFull says that a map has no row left. It may pass: what was removed is free a moment after its
// last connection.
var ErrFull = tables.ErrFull
