package config

import (
	"fmt"

	"github.com/spf13/pflag"

	"loxilb/internal/contract"
)

// contractFlags returns the existing loxilb's flags without effect in this version. A flag that
// only tunes or announces something is accepted and noted; a flag for a missing feature is refused,
// since a load balancer that runs without it is worse than one that does not start.
func contractFlags() (list []contract.Flag) {
	for _, f := range contract.AllFlags() {
		if f.Inert || f.State == contract.Unsupported {
			list = append(list, f)
		}
	}
	return list
}

// registerContract adds the flags, hidden from the help.
func registerContract(fs *pflag.FlagSet) {
	for _, f := range contractFlags() {
		usage := "no effect: "
		if f.State == contract.Unsupported {
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

// showContract makes the help show all flags.
func showContract(fs *pflag.FlagSet) {
	for _, f := range contractFlags() {
		fs.Lookup(f.Name).Hidden = false
	}
}

// checkContract refuses flags that promise a feature, and returns a note for each flag without
// effect. A flag with its default value is ignored, even if it is given. With --compat no flag is
// refused, so existing manifests start unchanged.
func checkContract(fs *pflag.FlagSet, compat bool) (notes []string, err error) {
	for _, f := range contractFlags() {
		v := fs.Lookup(f.Name).Value.String()
		switch {
		case v == f.Default || compat && f.Compat:
		case f.State == contract.Unsupported && !compat:
			return nil, &Error{Flag: "--" + f.Name, Value: v, Reason: "is refused: " + f.Note}
		default:
			notes = append(notes, fmt.Sprintf("--%s has no effect: %s", f.Name, f.Note))
		}
	}
	return notes, nil
}
