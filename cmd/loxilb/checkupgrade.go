package main

import (
	"fmt"
	"io"

	"loxilb/internal/kernel/datapath"
)

// checkUpgrade tells whether a start of this loxilb could take over what is pinned. It changes
// nothing, and a daemon may run.
func checkUpgrade(c datapath.Config, out io.Writer) error {
	if err := tryVectors(func() (*datapath.Datapath, error) { return datapath.Trial(c) }); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "loxilb %s can take over: what is pinned has the layout that it reads, the kernel takes its programs, and %d packets came out of them as they should\n",
		version, len(vectors()))
	return err
}
