package report

import (
	"net/netip"
	"time"
)

// Announcement is the decision whether a prefix is announced by BGP.
type Announcement struct {
	Prefix    netip.Prefix
	Announced bool
	Why       string
	Since     time.Time
}
