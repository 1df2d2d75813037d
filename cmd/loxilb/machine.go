package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// hostname returns the name of the machine, or "" if it has none.
func hostname() string {
	name, _ := os.Hostname()
	return name
}

// kernelRelease returns the running kernel's release.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
