package datapath

import (
	"loxilb/internal/datapath/attach"
	"loxilb/internal/datapath/connections"
	"loxilb/internal/datapath/loader"
	"loxilb/internal/datapath/routing"
	"loxilb/internal/datapath/tables"
	"loxilb/internal/datapath/xdp"
)

// What callers hand over and get, by the names of the parts that define it.
type (
	Timeouts     = loader.Timeouts
	Change       = tables.Change
	Interface    = attach.Interface
	Hook         = attach.Hook
	DefaultRoute = routing.DefaultRoute
	XDPInterface = xdp.Interface
	XDPMode      = xdp.Mode
	SweepStats   = connections.SweepStats
)

// The kinds of tc hooks, and the modes of XDP.
const (
	HookAuto   = attach.HookAuto
	HookTCX    = attach.HookTCX
	HookClsact = attach.HookClsact

	XDPNative  = xdp.Native
	XDPGeneric = xdp.Generic
)

// ErrFull says that a map has no row left. It may pass: what was removed is free a moment after its last connection.
var ErrFull = tables.ErrFull
