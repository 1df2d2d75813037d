// Package session is what each command of loxicmd stands on: the flags of all, the way to the
// server and its answers, and how they are printed.
package session

import (
	"fmt"
	"io"

	"loxilb/internal/host/build"
)

// Exit codes of loxicmd.
const (
	ExitOK          = 0
	ExitRefused     = 1 // the server refused, or its answer was not understood
	ExitUsage       = 2
	ExitUnreachable = 3
	ExitNo          = 4 // of explain: the packet does not get there

	ExitPlanned = 2 // of plan: there is something to do
)

// Env is what a run of loxicmd reads and writes.
type Env struct {
	Build  build.Info // of loxicmd itself
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	Getenv    func(string) string // of its environment
	TokenFile string              // where a token is kept; empty: where the contract has it
}

func (e *Env) get(name string) string {
	if e.Getenv == nil {
		return ""
	}
	return e.Getenv(name)
}

// Failure is an error with an exit code; any other error is one of usage.
type Failure struct {
	Code int
	err  error
}

func (f *Failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

// Exit ends a command with an exit code of its own; err nil: all was said already.
func Exit(code int, err error) error { return &Failure{code, err} }

func (f *Failure) Unwrap() error { return f.err }

// Refused is what the server, or the state of things, has against a command.
func Refused(format string, args ...any) error {
	return &Failure{ExitRefused, fmt.Errorf(format, args...)}
}
