package lb

import (
	"slices"
	"strings"
)

// ConnectionStates returns the contract's words for the states of a connection: of TCP, of UDP and
// other protocols with ports, of echo requests.
func ConnectionStates() []string {
	return []string{"sync-sent", "sync-ack", "est", "fini", "closed-wait", "closed", "udp-uni", "udp-est", "req-sent", "bidir"}
}

// ParseConnectionState parses one of them, or the equivalent word of conntrack, ss or netstat.
func ParseConnectionState(text string) (string, error) {
	word := strings.ReplaceAll(strings.ToLower(text), "_", "-")
	switch word {
	case "established", "estab":
		word = "est"
	case "syn-sent":
		word = "sync-sent"
	case "syn-recv", "syn-received":
		word = "sync-ack"
	case "close":
		word = "closed"
	}
	if !slices.Contains(ConnectionStates(), word) {
		return "", NewFieldError("state", text, "is no state of a connection"+DidYouMean(word, ConnectionStates()), strings.Join(ConnectionStates(), ", "))
	}
	return word, nil
}
