package config

import (
	"fmt"

	"github.com/spf13/pflag"

	"loxilb/internal/contract"
)

// contractFlags are those of the contract that this version does not act on. One that would only
// tune or announce something is taken and noted; one that promises a feature is refused, since a
// balancer that starts without what it was asked for is worse than one that does not start.
func contractFlags() (list []contract.Flag) {
	for _, f := range contract.AllFlags() {
		if f.Inert || f.State == contract.NotThere {
			list = append(list, f)
		}
	}
	return list
}

// registerContract adds the flags, which the help does not show.
func registerContract(fs *pflag.FlagSet) {
	for _, f := range contractFlags() {
		usage := "no effect: "
		if f.State == contract.NotThere {
			usage = "refused: "
		}
		if f.Default == "false" {
			fs.BoolP(f.Name, f.Short, false, usage+f.Note)
		} else {
			fs.StringP(f.Name, f.Short, f.Default, usage+f.Note)
		}
		fs.Lookup(f.Name).Hidden = true
	}
}

// showContract has the help show them all.
func showContract(fs *pflag.FlagSet) {
	for _, f := range contractFlags() {
		fs.Lookup(f.Name).Hidden = false
	}
}

// checkContract refuses what promises a feature, and returns a note for each flag that has no
// effect. A flag that holds its default says nothing, even when it is written. With --compat
// nothing is refused: manifests start as they are.
func checkContract(fs *pflag.FlagSet, compat bool) (notes []string, err error) {
	for _, f := range contractFlags() {
		v := fs.Lookup(f.Name).Value.String()
		switch {
		case v == f.Default || compat && f.Compat:
		case f.State == contract.NotThere && !compat:
			return nil, &Error{Flag: "--" + f.Name, Value: v, Reason: "is refused: " + f.Note}
		default:
			notes = append(notes, fmt.Sprintf("--%s has no effect: %s", f.Name, f.Note))
		}
	}
	return notes, nil
}
