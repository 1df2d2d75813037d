package lb

import (
	"slices"
	"strings"
)

// ConnectionStates are the words for what a connection has seen, as the contract has them: of TCP,
// of UDP and all else that has ports, of echo requests.
func ConnectionStates() []string {
	return []string{"sync-sent", "sync-ack", "est", "fini", "closed-wait", "closed", "udp-uni", "udp-est", "req-sent", "bidir"}
}

// ParseConnectionState reads one of them, or what conntrack, ss and netstat call the same.
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
