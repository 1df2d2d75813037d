package options

import (
	"errors"
	"fmt"
	"slices"
)

// existingFlag is a flag of the existing controller that has no counterpart here.
type existingFlag struct {
	name     string
	defaults []string // values that change nothing
	instead  string   // what to do
	harmless bool     // the flag does not affect traffic: it is accepted with a warning
	options  *Options
}

func existingOnly() []existingFlag {
	off := []string{"", "false"}
	return []existingFlag{
		{name: "appendEPs", defaults: off, instead: "give each cluster a --zone and addresses of its own"},
		{name: "privateCIDR", defaults: []string{""}, instead: "assign the private addresses to the nodes, and name them in --cidrPools"},
		{name: "gatewayAPI", defaults: off, instead: "create Services of type LoadBalancer"},
		{name: "loxilbGatewayClass", defaults: []string{"", Class}, instead: "omit it, as there is no Gateway API", harmless: true},
		{name: "enableK8sMetadata", defaults: off, instead: "omit it: services on balancers have the names of Services", harmless: true},
		{name: "enableBGPCRDs", defaults: off, instead: "name BGP neighbors in --extBGPPeers, or create neighbors and policies on the balancers"},
	}
}

func (f *existingFlag) usage() string {
	if f.harmless {
		return "has no effect: " + f.instead
	}
	return "not available: " + f.instead
}

func (*existingFlag) String() string { return "" }

// IsBoolFlag lets the flag have no value.
func (f *existingFlag) IsBoolFlag() bool { return slices.Contains(f.defaults, "false") }

// Set accepts defaults, and all values of harmless flags.
func (f *existingFlag) Set(v string) error {
	switch {
	case slices.Contains(f.defaults, v):
		return nil
	case f.harmless:
		f.options.Ignored = append(f.options.Ignored, fmt.Sprintf("--%s %s", f.name, f.usage()))
		return nil
	}
	return errors.New(f.usage())
}
