package report

import "testing"

// TestConnectionStates checks that each word is accepted, and so are the names in other tools.
func TestConnectionStates(t *testing.T) {
	t.Parallel()
	words := map[string]string{
		"Established": "est", "ESTAB": "est", "SYN_SENT": "sync-sent", "SYN-RECV": "sync-ack", "SYN_RECEIVED": "sync-ack", "CLOSE": "closed",
		"open": "", "time_wait": "", "h/e": "", "": "",
	}
	for _, word := range ConnectionStates() {
		words[word] = word
	}
	for text, want := range words {
		if got, err := ParseConnectionState(text); got != want || (err != nil) != (want == "") {
			t.Errorf("%q is %q (%v), want %q", text, got, err, want)
		}
	}
}
