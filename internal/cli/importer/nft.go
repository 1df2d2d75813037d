package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"loxilb/internal/lb"
)

// readNFT reads rules of nftables that translate destinations (dnat), as `nft list ruleset` prints
// them or as a file has them.
func readNFT(c *collector, text string) {
	r := &nftReader{collector: c, maps: map[string][]nftElement{}}
	list := nftStatements(c, text)
	for _, s := range list {
		r.element(&s)
	}
	for _, s := range list {
		r.rule(&s)
	}
}

// nftStatement is a statement, with its enclosing blocks.
type nftStatement struct {
	line   int
	blocks []string // "table ip nat", "chain prerouting", "map services"
	words  []string
}

// nftElement is an element of a map: "20.20.20.1 . 80 : 10.0.0.1 . 8080".
type nftElement struct {
	line       int
	key, value []string // split at the dots
}

type nftReader struct {
	*collector
	maps map[string][]nftElement
}

// nftBlocks are the keywords of blocks of statements; other braces are sets.
var nftBlocks = []string{"table", "chain", "map", "set", "flowtable", "counter", "quota", "limit", "ct", "secmark", "synproxy"}

// nftStatements cuts a file into statements, at ends of lines and at semicolons outside of sets.
func nftStatements(c *collector, text string) (list []nftStatement) {
	var blocks, words []string
	number, begin, sets := 0, 0, 0
	flush := func() {
		if len(words) > 0 {
			list = append(list, nftStatement{begin, slices.Clone(blocks), words})
		}
		words = nil
	}
	for line := range strings.Lines(text) {
		number++
		for _, word := range nftWords(line) {
			if len(words) == 0 {
				begin = number
			}
			opens := len(words) > 0 && (slices.Contains(nftBlocks, words[0]) || words[0] == "add" && len(words) > 1 && slices.Contains(nftBlocks, words[1]))
			switch {
			case word == "{" && sets == 0 && opens:
				blocks, words = append(blocks, strings.Join(words, " ")), nil
			case word == "{":
				sets++
				words = append(words, word)
			case word == "}" && sets > 0:
				sets--
				words = append(words, word)
			case word == "}":
				flush()
				if len(blocks) == 0 {
					c.addNote(number, "a brace is closed that was not opened")
					continue
				}
				blocks = blocks[:len(blocks)-1]
			case word == ";" && sets == 0:
				flush()
			default:
				words = append(words, word)
			}
		}
		if sets == 0 && !strings.HasSuffix(strings.TrimRight(line, "\r\n"), `\`) {
			flush()
		}
	}
	flush()
	return list
}

// nftWords splits a line into words. Braces, commas, semicolons and a colon between spaces are
// separate words; text in quotes is one.
func nftWords(line string) (words []string) {
	separate := strings.NewReplacer("{", " { ", "}", " } ", ",", " , ", ";", " ; ")
	line = strings.TrimSuffix(strings.TrimSpace(line), `\`)
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, `"`+part+`"`)
			continue
		}
		part, _, comment := strings.Cut(part, "#")
		words = append(words, strings.Fields(separate.Replace(part))...)
		if comment {
			break
		}
	}
	return words
}

// element reads the elements of a map: in its block, or from add element.
func (r *nftReader) element(s *nftStatement) {
	open := slices.Index(s.words, "{")
	if open < 0 {
		return
	}
	name := ""
	switch {
	case s.words[0] == "elements" && len(s.blocks) > 0:
		words := strings.Fields(s.blocks[len(s.blocks)-1])
		name = words[len(words)-1]
	case len(s.words) > 4 && s.words[0] == "add" && s.words[1] == "element":
		name = s.words[open-1]
	default:
		return
	}
	elements, _ := r.set(s.line, s.words[open:])
	r.maps[name] = append(r.maps[name], elements...)
}

// set reads { KEY : VALUE, ... }, and returns the rest.
func (r *nftReader) set(line int, words []string) (list []nftElement, rest []string) {
	end := slices.Index(words, "}")
	if end < 0 {
		return nil, nil
	}
	for part := range strings.SplitSeq(strings.Join(words[1:end], " "), " , ") {
		part = strings.Trim(part, " ,")
		if part == "" {
			continue
		}
		key, value, pair := strings.Cut(part, " : ")
		if !pair { // 80:10.0.0.1, or a set without values
			key, value, _ = strings.Cut(part, ":")
		}
		list = append(list, nftElement{line, dotted(key), dotted(value)})
	}
	return list, words[end+1:]
}

// dotted splits a concatenation.
func dotted(text string) []string {
	parts := strings.Split(strings.TrimSpace(text), " . ")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// nftMatch is a rule's match.
type nftMatch struct {
	vips  []string
	ports []string // N or N-M
	proto []lb.Protocol
}

func (r *nftReader) rule(s *nftStatement) {
	words := s.words
	inChain := len(s.blocks) > 0 && strings.Contains(s.blocks[len(s.blocks)-1], "chain ")
	if len(words) > 2 && words[0] == "add" && words[1] == "rule" {
		inChain = true
	}
	at := slices.Index(words, "dnat")
	switch {
	case !inChain, words[0] == "type", words[0] == "policy", words[0] == "comment":
		return
	case at < 0:
		r.addNote(s.line, "this rule is skipped: it is not dnat")
		return
	}
	m, why := r.match(words[:at])
	if why == "" {
		why = r.target(s.line, m, words[at+1:])
	}
	if why != "" {
		r.addNote(s.line, "this rule is skipped: %s", why)
	}
}

// match parses the words before dnat.
func (r *nftReader) match(words []string) (m nftMatch, why string) {
	if len(words) > 2 && words[0] == "add" {
		words = words[min(5, len(words)):] // add rule FAMILY TABLE CHAIN
	}
	for len(words) > 0 {
		two := words[0]
		if len(words) > 1 {
			two += " " + words[1]
		}
		rest := words[min(2, len(words)):]
		switch {
		case two == "ip daddr" || two == "ip6 daddr":
			m.vips, words = r.values(rest)
		case strings.HasSuffix(two, " dport"):
			if p, err := lb.ParseProtocol(words[0]); err == nil {
				m.proto = []lb.Protocol{p}
			} else if words[0] != "th" {
				return m, two + " is unknown"
			}
			m.ports, words = r.values(rest)
		case two == "meta l4proto" || two == "ip protocol" || two == "ip6 nexthdr":
			var names []string
			names, words = r.values(rest)
			for _, name := range names {
				p, err := lb.ParseProtocol(name)
				if err != nil {
					return m, err.Error()
				}
				m.proto = append(m.proto, p)
			}
		case words[0] == "counter":
			if words = words[1:]; len(words) > 3 && words[0] == "packets" {
				words = words[4:]
			}
		default:
			return m, fmt.Sprintf("condition %q has no equivalent in a service", strings.Join(words[:min(3, len(words))], " "))
		}
	}
	return m, ""
}

// values returns a value, or the values of a set.
func (r *nftReader) values(words []string) (list, rest []string) {
	if len(words) == 0 {
		return nil, nil
	}
	if words[0] != "{" {
		return words[:1], words[1:]
	}
	elements, rest := r.set(0, words)
	for _, e := range elements {
		list = append(list, e.key...)
	}
	return list, rest
}

// target parses the words after dnat, and makes the services.
func (r *nftReader) target(line int, m nftMatch, words []string) (why string) {
	for len(words) > 0 && words[0] != "to" { // dnat ip addr . port to
		words = words[1:]
	}
	if len(words) < 2 {
		return "it has no target address"
	}
	words = words[1:]
	at := slices.Index(words, "map")
	if at < 0 {
		end := len(words)
		if i := slices.IndexFunc(words, func(w string) bool {
			return slices.Contains([]string{"random", "persistent", "fully-random", "comment"}, w)
		}); i >= 0 {
			end = i
		}
		e, err := nftEndpoint(dotted(strings.Join(words[:end], " ")))
		if err != nil {
			return err.Error()
		}
		return r.services(line, m, lb.RoundRobin, []lb.Endpoint{e})
	}
	elements, rest, why := r.elements(line, words[at+1:])
	if why != "" {
		return why
	}
	key := strings.Join(words[:at], " ")
	if algorithm, mod, chosen := nftChoice(words[:at]); chosen {
		return r.chosen(line, m, algorithm, mod, elements, rest)
	}
	return r.mapped(m, dotted(key), elements)
}

// elements returns the elements of a map, by name or inline.
func (r *nftReader) elements(line int, words []string) (list []nftElement, rest []string, why string) {
	switch {
	case len(words) == 0:
		return nil, nil, "its map is missing"
	case words[0] == "{":
		list, rest = r.set(line, words)
		return list, rest, ""
	}
	name := strings.TrimPrefix(words[0], "@")
	list, ok := r.maps[name]
	if !ok {
		return nil, nil, fmt.Sprintf("map %s is missing or empty", name)
	}
	return list, words[1:], ""
}

// nftChoice returns how an endpoint is chosen by numgen or a hash.
func nftChoice(words []string) (a lb.Algorithm, mod int, ok bool) {
	i := slices.Index(words, "mod")
	if i < 0 || i+1 >= len(words) {
		return 0, 0, false
	}
	mod, err := strconv.Atoi(words[i+1])
	switch words[0] {
	case "numgen":
		a = lb.RoundRobin
		if words[1] == "random" {
			a = lb.Random
		}
	case "jhash", "symhash":
		a = lb.Hash
		if slices.Contains(words, "saddr") && !slices.Contains(words, "sport") {
			a = lb.Persist
		}
	default:
		return 0, 0, false
	}
	return a, mod, err == nil
}

// chosen makes services of a map from numbers to endpoints. The weight of an endpoint is the number
// of its elements.
func (r *nftReader) chosen(line int, m nftMatch, algorithm lb.Algorithm, mod int, elements []nftElement, rest []string) (why string) {
	port := ""
	if len(rest) > 0 && strings.HasPrefix(rest[0], ":") {
		if port = strings.TrimPrefix(rest[0], ":"); port == "" && len(rest) > 1 {
			port = rest[1]
		}
	}
	var endpoints []lb.Endpoint
	total, equal := 0, true
	for _, el := range elements {
		value := el.value
		if port != "" {
			value = append(slices.Clone(value), port)
		}
		e, err := nftEndpoint(value)
		if err != nil {
			return err.Error()
		}
		first, last, isRange := strings.Cut(el.key[0], "-")
		n := 1
		if isRange {
			a, errA := strconv.Atoi(first)
			b, errB := strconv.Atoi(last)
			if errA != nil || errB != nil || b < a || b-a >= 65535 {
				return fmt.Sprintf("%q is not a range of numbers", el.key[0])
			}
			n = b - a + 1
		}
		if total += n; total > 65535 {
			return "it has more than 65535 numbers, the largest weight"
		}
		if i := slices.IndexFunc(endpoints, func(o lb.Endpoint) bool { return o.AddrPort() == e.AddrPort() }); i >= 0 {
			endpoints[i].Weight += uint16(n)
		} else {
			e.Weight = uint16(n)
			endpoints = append(endpoints, e)
		}
	}
	if total != mod {
		r.addNote(line, "of %d numbers only %d have an endpoint; here all traffic goes to those", mod, total)
	}
	for _, e := range endpoints {
		equal = equal && e.Weight == endpoints[0].Weight
	}
	if !equal && algorithm == lb.RoundRobin {
		algorithm = lb.Priority
	}
	return r.services(line, m, algorithm, endpoints)
}

// mapped makes a service of each element of a map from addresses and ports to endpoints.
func (r *nftReader) mapped(m nftMatch, key []string, elements []nftElement) (why string) {
	for _, el := range elements {
		if len(el.key) != len(key) {
			r.addNote(el.line, "element %s is skipped: it does not match the map's key, %s", strings.Join(el.key, " . "), strings.Join(key, " . "))
			continue
		}
		one := m
		for i, k := range key {
			switch {
			case strings.HasSuffix(k, "daddr"):
				one.vips = []string{el.key[i]}
			case strings.HasSuffix(k, "dport"):
				one.ports = []string{el.key[i]}
				if p, err := lb.ParseProtocol(strings.Fields(k)[0]); err == nil {
					one.proto = []lb.Protocol{p}
				}
			case strings.HasSuffix(k, "l4proto"), strings.HasSuffix(k, "protocol"):
				p, err := lb.ParseProtocol(el.key[i])
				if err != nil {
					return err.Error()
				}
				one.proto = []lb.Protocol{p}
			default:
				return fmt.Sprintf("a map keyed by %q is not supported (allowed: address, port, protocol)", k)
			}
		}
		e, err := nftEndpoint(el.value)
		if err == nil {
			if why := r.services(el.line, one, lb.RoundRobin, []lb.Endpoint{e}); why != "" {
				err = fmt.Errorf("%s", why)
			}
		}
		if err != nil {
			r.addNote(el.line, "element %s is skipped: %v", strings.Join(el.key, " . "), err)
		}
	}
	return ""
}

// nftEndpoint reads 10.0.0.1, 10.0.0.1:80, [2001:db8::1]:80, or address and port of a
// concatenation; port 0 is the service's own.
func nftEndpoint(parts []string) (e lb.Endpoint, err error) {
	e.Weight = 1
	host, port := parts[0], ""
	if len(parts) > 1 {
		port = parts[1]
	} else if i := strings.LastIndexByte(host, ':'); i >= 0 && (strings.Count(host, ":") == 1 || strings.Contains(host, "]:")) {
		host, port = host[:i], host[i+1:]
	}
	if e.Addr, err = address(host); err == nil && port != "" {
		e.Port, err = portOf(port, "tcp")
	}
	return e, err
}

// services makes a service for each address, port and protocol of the rule.
func (r *nftReader) services(line int, m nftMatch, algorithm lb.Algorithm, endpoints []lb.Endpoint) (why string) {
	switch {
	case len(m.vips) == 0:
		return "it has no address (ip daddr), which a service needs"
	case len(m.proto) == 0:
		return "it has no protocol with ports"
	}
	if len(m.ports) == 0 {
		m.ports = []string{"1-65535"}
	}
	if n := len(m.vips) * len(m.proto) * len(m.ports); n > lb.MaxServices {
		return fmt.Sprintf("it makes %d services, more than the limit of %d", n, lb.MaxServices)
	}
	for _, vip := range m.vips {
		for _, p := range m.proto {
			for _, ports := range m.ports {
				s := lb.Service{Algorithm: algorithm, Endpoints: slices.Clone(endpoints)}
				s.Protocol = p
				var err error
				first, last, isRange := strings.Cut(ports, "-")
				if s.VIP, err = address(vip); err == nil {
					s.Port, err = portOf(first, p.String())
				}
				if err == nil && isRange {
					s.PortMax, err = portOf(last, p.String())
				}
				if err != nil {
					return err.Error()
				}
				for i := range s.Endpoints {
					if e := &s.Endpoints[i]; e.Port == 0 {
						e.Port, e.PortMax = s.Port, s.PortMax
					}
				}
				r.add(line, s)
			}
		}
	}
	return ""
}
