// Package build identifies the build of a program.
package build

import (
	"fmt"
	"runtime"
	"strings"
)

// Info is set by the linker and the compiler (tools/build).
type Info struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"`     // in full; empty outside of git
	Date      string `json:"commitDate,omitempty"` // of the commit, in RFC 3339 format
	Go        string `json:"go"`
	ObjectABI string `json:"objectABI,omitempty"` // the layout of pinned maps; empty for programs without BPF objects
}

// Of completes the values set by the linker.
func Of(version, commit, date string) Info {
	return Info{Version: version, Commit: commit, Date: date, Go: fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH)}
}

// Brief returns one line, in the form of the existing loxilb's build info.
func (i Info) Brief() string {
	if i.Commit == "" {
		return i.Go
	}
	return fmt.Sprintf("%.12s of %s, %s", i.Commit, i.Date, i.Go)
}

// Lines returns the lines after a program's name and version in --version.
func (i Info) Lines() string {
	var b strings.Builder
	for _, line := range [][2]string{{"commit", i.Commit}, {"commit date", i.Date}, {"Go", i.Go}, {"object ABI", i.ObjectABI}} {
		if line[1] != "" {
			fmt.Fprintf(&b, "  %-12s %s\n", line[0], line[1])
		}
	}
	return b.String()
}
