package main

import (
	"fmt"
	"strings"
)

// listening finds a listening socket (state 0A) on a port in the form of /proc/net/tcp.
func listening(table string, port int) bool {
	suffix := fmt.Sprintf(":%04X", port)
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], suffix) {
			return true
		}
	}
	return false
}
