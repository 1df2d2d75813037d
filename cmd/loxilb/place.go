package main

import (
	"fmt"
	"os"
	"strings"

	"loxilb/internal/host/apisocket"
)

// place is this start of the machine, and this network namespace.
func place() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // no /proc: roles hold then as long as the state directory does
	}
	cookie, err := apisocket.Cookie()
	if err != nil {
		return strings.TrimSpace(string(boot))
	}
	return fmt.Sprintf("%s netns-%d", strings.TrimSpace(string(boot)), cookie)
}
