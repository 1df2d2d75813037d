package main

import (
	"fmt"
	"io"

	"loxilb/internal/kernel/datapath"
)

// checkUpgrade reports whether this loxilb could take over the pinned programs and maps. It changes
// nothing, so a daemon may be running.
func checkUpgrade(c datapath.Config, out io.Writer) error {
	if err := tryVectors(func() (*datapath.Datapath, error) { return datapath.Trial(c) }); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "loxilb %s can take over: what is pinned has the layout that it reads, the kernel takes its programs, and %d packets came out of them as they should\n",
		version, len(vectors()))
	return err
}
