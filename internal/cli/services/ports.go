package services

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"loxilb/internal/lb"
)

// portFlags have a flag for each protocol with ports: its ports, unparsed.
type portFlags map[lb.Protocol]*[]string

// register defines the flags of protocols that this build supports. help is the format of the first
// one's value.
func (f portFlags) register(fs *pflag.FlagSet, help string) {
	for _, p := range lb.Protocols() {
		if !p.HasPorts() || !p.Supported() {
			continue
		}
		f.define(fs, p, strings.ToUpper(p.String())+" ports"+help)
		help = ", in the format of --" + lb.Protocols()[0].String()
	}
}

// registerMissing defines the flags of other protocols, which the daemon refuses.
func (f portFlags) registerMissing(fs *pflag.FlagSet) {
	for _, p := range lb.Protocols() {
		if p.HasPorts() && !p.Supported() {
			f.define(fs, p, "not part of this build: "+strings.ToUpper(p.String())+" ports")
		}
	}
}

func (f portFlags) define(fs *pflag.FlagSet, p lb.Protocol, help string) {
	f[p] = fs.StringSlice(p.String(), nil, help)
}

// given reports whether any of the flags is given.
func (f portFlags) given() bool {
	for _, texts := range f {
		if len(*texts) > 0 {
			return true
		}
	}
	return false
}

// each calls yield with each protocol and its ports, unparsed. It returns the first error of yield
// with the flag's name.
func (f portFlags) each(yield func(lb.Protocol, []string) error) error {
	for _, p := range lb.Protocols() {
		if f[p] == nil || len(*f[p]) == 0 {
			continue
		}
		if err := yield(p, *f[p]); err != nil {
			return fmt.Errorf("--%s: %w", p, err)
		}
	}
	return nil
}
