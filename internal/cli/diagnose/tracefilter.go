package diagnose

import (
	"fmt"
	"slices"
	"strconv"

	v1 "loxilb/api/v1"
	"loxilb/internal/lb"
)

// filter parses words: KEY VALUE pairs or a protocol, optionally joined by `and`.
func filter(words []string) (*v1.TracePacketsParams, error) {
	params := &v1.TracePacketsParams{}
	said := map[string]bool{}
	for i := 0; i < len(words); i++ {
		key, value := words[i], ""
		switch {
		case key == "and":
			continue
		case slices.Contains(lb.ProtocolWords(), key):
			key, value = "proto", key
		default:
			if i++; i < len(words) {
				value = words[i]
			}
		}
		if said[key] {
			return nil, fmt.Errorf("filter keyword %q is given twice", key)
		}
		said[key] = true
		if err := setFilter(params, key, value); err != nil {
			return nil, err
		}
	}
	return params, nil
}

func setFilter(params *v1.TracePacketsParams, key, value string) error {
	members := map[string]*string{
		"host": &params.Host, "proto": &params.Protocol, "vip": &params.Vip, "service": &params.Service, "interface": &params.Interface, "verdict": &params.Verdict,
		"reason": &params.Reason,
	}
	to := members[key]
	if to == nil && key != "port" {
		return fmt.Errorf("unknown filter keyword %q (use host, port, proto, vip, service, interface, verdict or reason)", key)
	}
	if value == "" {
		return fmt.Errorf("filter keyword %q needs a value", key)
	}
	if to != nil {
		*to = value
		return nil
	}
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("port %q is out of range (allowed: 1 to 65535)", value)
	}
	params.Port = int(n)
	return nil
}
