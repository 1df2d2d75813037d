package report

import (
	"net/netip"
	"time"
)

// Announcement is whether a prefix is announced by BGP, and why.
type Announcement struct {
	Prefix    netip.Prefix
	Announced bool
	Why       string
	Since     time.Time
}
