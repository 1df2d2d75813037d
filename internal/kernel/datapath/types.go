package datapath

import (
	"loxilb/internal/kernel/datapath/attach"
	"loxilb/internal/kernel/datapath/connections"
	"loxilb/internal/kernel/datapath/loader"
	"loxilb/internal/kernel/datapath/routing"
	"loxilb/internal/kernel/datapath/tables"
)

// Types of the parts that callers use.
type (
	// Timeouts are the times for which a connection may be silent.
	Timeouts = loader.Timeouts
	// Change is the desired state of a service.
	Change = tables.Change
	// Interface describes an interface for Attach.
	Interface = attach.Interface
	// GTPFlow is the traffic of a mobile user with one address.
	GTPFlow = attach.GTPFlow
	// GTPLinks are the interfaces of packets to mobile users.
	GTPLinks = attach.GTPLinks
	// Hook is the kind of tc hook.
	Hook = attach.Hook
	// DefaultRoute is a next hop of a default route.
	DefaultRoute = routing.DefaultRoute
	// XDPInterface describes an interface for the XDP program.
	XDPInterface = attach.XDPInterface
	// XDPMode is the mode of attaching the XDP program.
	XDPMode = attach.XDPMode
	// ProbePath is the path of a probe's redirected packets.
	ProbePath = attach.ProbePath
	// SweepStats are the results of sweeps.
	SweepStats = connections.SweepStats
)

// The kinds of tc hooks, and the modes of XDP.
const (
	HookAuto   = attach.HookAuto
	HookTCX    = attach.HookTCX
	HookClsact = attach.HookClsact

	XDPNative  = attach.XDPNative
	XDPGeneric = attach.XDPGeneric
)

// ErrFull reports that a map has no row left. It may be temporary: a removed object releases its
// rows a moment after its last connection.
var ErrFull = tables.ErrFull
