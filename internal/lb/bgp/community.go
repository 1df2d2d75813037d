package bgp

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// wellKnown are the names of communities (IANA) that an action can set.
func wellKnown() []string {
	return []string{
		"internet", "planned-shut", "accept-own", "route-filter-translated-v4", "route-filter-v4", "route-filter-translated-v6", "route-filter-v6",
		"llgr-stale", "no-llgr", "blackhole", "no-export", "no-advertise", "no-export-subconfed", "no-peer",
	}
}

// encapsulations are the names of tunnel types in extended communities.
func encapsulations() []string {
	return []string{
		"L2TPv3 over IP", "GRE", "IP in IP", "VXLAN", "NVGRE", "MPLS", "MPLS in GRE", "VXLAN GRE", "MPLS in UDP", "GENEVE",
	}
}

// validateValue checks a community that an action sets. The speaker would replace a number that is
// too large by the largest one: 70000:666 would become 65535:666, the community blackhole.
func validateValue(field string, kind SetType, value string) error {
	isValue, allowed := false, ""
	switch kind {
	case CommunitySet:
		_, err := strconv.ParseUint(value, 10, 32)
		isValue = err == nil || slices.Contains(wellKnown(), value) || areNumbers(strings.Split(value, ":"), 16, 16)
		allowed = "two numbers to 65535 as in 65000:100, or " + strings.Join(wellKnown(), ", ")
	case LargeCommunitySet:
		isValue = areNumbers(strings.Split(value, ":"), 32, 32, 32)
		allowed = "three numbers to 4294967295, as in 65000:1:100"
	case ExtCommunitySet:
		isValue = isExtCommunity(value)
		allowed = "rt, soo, encap or lb, as in rt:65000:100, rt:192.0.2.1:100, rt:1.14464:100 (AS 80000), encap:VXLAN"
	}
	if !isValue {
		return lb.NewFieldError(field, value, "is not a community", allowed)
	}
	return nil
}

// isExtCommunity reports whether the speaker accepts a text as an extended community.
func isExtCommunity(value string) bool {
	subtype, rest, _ := strings.Cut(value, ":")
	subtype = strings.ToLower(subtype)
	if subtype == "encap" {
		return slices.Contains(encapsulations(), rest)
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 || !slices.Contains([]string{"rt", "soo", "lb"}, subtype) {
		return false
	}
	administrator, number := rest[:i], rest[i+1:]
	if areNumbers([]string{administrator, number}, 16, 32) {
		return true
	}
	addr, err := netip.ParseAddr(administrator)
	isAddr := err == nil && addr.Zone() == "" && strings.Trim(administrator, ":") == administrator
	isLong := isAddr || areNumbers(strings.Split(administrator, "."), 16, 16)
	return subtype != "lb" && isLong && areNumbers([]string{number}, 16)
}

// areNumbers reports whether each text is a number of at most so many bits.
func areNumbers(texts []string, bits ...int) bool {
	if len(texts) != len(bits) {
		return false
	}
	for i, text := range texts {
		if _, err := strconv.ParseUint(text, 10, bits[i]); err != nil {
			return false
		}
	}
	return true
}
