package netdev

import (
	"context"
	"net/netip"
)

// VIPs owns the VIPs that nobody else owns.
type VIPs struct{ net *Net }

func newVIPs(n *Net) *VIPs { return &VIPs{net: n} }

func (v *VIPs) moved(context.Context, []netip.Addr, bool) {}
