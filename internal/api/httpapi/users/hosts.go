package users

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"loxilb/internal/api/httpapi/transport"
)

// knownHost reports whether the Host header of a request names this machine in a way that a foreign
// page cannot: by DNS rebinding, an attacker's name resolves to our address, and its page then
// shares our origin. If a token is required, the page lacks it.
//
// An address and localhost are safe, and so are the names of --api-hosts and, from the network,
// names that public DNS does not resolve: names of one label and of Kubernetes services.
func (a *API) knownHost(hostport string, by transport.Kind) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if host == "" || host == "localhost" || slices.Contains(a.Hosts, host) {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	if by == transport.ByLoopback {
		return false
	}
	return !strings.Contains(host, ".") || strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".svc.cluster.local")
}
