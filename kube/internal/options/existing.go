package options

import (
	"errors"
	"fmt"
	"slices"
)

// existingFlag is a flag of the existing controller that kube-loxilb does not implement.
type existingFlag struct {
	name        string
	defaults    []string // values that change nothing
	alternative string   // what to do instead
	harmless    bool     // the flag does not affect traffic, so all values are accepted with a warning
	options     *Options
}

func existingOnly() []existingFlag {
	off := []string{"", "false"}
	return []existingFlag{
		{name: "appendEPs", defaults: off, alternative: "give each cluster its own --zone and addresses"},
		{name: "privateCIDR", defaults: []string{""}, alternative: "assign the private addresses to the nodes, and list them in --cidrPools"},
		{name: "gatewayAPI", defaults: off, alternative: "create Services of type LoadBalancer"},
		{name: "loxilbGatewayClass", defaults: []string{"", Class}, alternative: "omit it, as there is no Gateway API", harmless: true},
		{name: "enableK8sMetadata", defaults: off, alternative: "omit it: services on balancers are named after Services", harmless: true},
		{name: "enableBGPCRDs", defaults: off, alternative: "list BGP neighbors in --extBGPPeers, or create neighbors and policies on the balancers"},
	}
}

func (f *existingFlag) usage() string {
	if f.harmless {
		return "has no effect: " + f.alternative
	}
	return "not available: " + f.alternative
}

func (*existingFlag) String() string { return "" }

// IsBoolFlag reports whether the flag may be given without a value.
func (f *existingFlag) IsBoolFlag() bool { return slices.Contains(f.defaults, "false") }

// Set accepts the defaults, and any value of a harmless flag.
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
