package lb

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
)

// parseSources parses prefixes, 10.0.0.0/8 or 2001:db8::/32, and addresses, which are prefixes of
// full length, and normalizes them by NormalSources. field is the name of one of them.
func parseSources(field string, list []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		p, err := parseSource(field, s)
		if err != nil {
			return nil, err
		}
		out[i] = p
	}
	return NormalSources(out), nil
}

func parseSource(field, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, addrErr := netip.ParseAddr(s)
		if addrErr != nil {
			return p, NewFieldError(field, s, "is not a prefix", "IP/LENGTH or IP")
		}
		if err := addrForm(field, a); err != nil { // a prefix has no zone: it would be lost, and a length behind it, too
			return p, err
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	return p, addrForm(field, p.Addr())
}

// NormalSources clears the bits after each prefix, sorts, and removes duplicates. It changes the
// list.
func NormalSources(list []netip.Prefix) []netip.Prefix {
	for i, p := range list {
		list[i] = p.Masked()
	}
	slices.SortFunc(list, ComparePrefix)
	return slices.Compact(list)
}

// ComparePrefix orders by address, then by length.
func ComparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func (s Service) validateSources() error {
	if err := s.validateSourceList(FieldSources, FieldSource, s.Sources); err != nil {
		return err
	}
	return s.validateSourceList(FieldDenied, FieldDeniedSource, s.Denied)
}

func (s Service) validateSourceList(field, one string, list []netip.Prefix) error {
	if n := len(list); n > MaxSourcesPerService {
		return NewFieldError(field, strconv.Itoa(n), "is too many", "0 to "+strconv.Itoa(MaxSourcesPerService))
	}
	for i, p := range list {
		if !p.IsValid() {
			return NewFieldError(one, p.String(), "is not a prefix", "IP/LENGTH or IP")
		}
		if err := addrForm(one, p.Addr()); err != nil {
			return err
		}
		if p.Addr().Is4() != s.VIP.Is4() {
			return NewFieldError(one, p.String(), "is "+family(p.Addr())+", and the VIP is "+family(s.VIP),
				family(s.VIP)+" prefixes")
		}
		if p != p.Masked() || i > 0 && ComparePrefix(list[i-1], p) >= 0 {
			return NewFieldError(one, p.String(), "is not in its place or has bits behind its length", "sorted prefixes, each once")
		}
	}
	return nil
}
