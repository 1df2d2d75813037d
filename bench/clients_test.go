package main

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestExchangeLarge checks that an answer that is missing, short or complete has its own result.
func TestExchangeLarge(t *testing.T) {
	for want, answer := range map[string]int{"timeout": 0, "closed": 10, attemptOK: 3000} {
		client, server := net.Pipe()
		go func() {
			b := make([]byte, 3000)
			_, _ = io.ReadFull(server, b)
			_, _ = server.Write(b[:answer])
		}()
		if answer == 0 {
			_ = client.SetReadDeadline(time.Now())
		}
		if got := resultOf(exchangeLarge(client)); got != want {
			t.Errorf("an answer of %d bytes is called %q, want %q", answer, got, want)
		}
		_, _ = client.Close(), server.Close()
	}
}
